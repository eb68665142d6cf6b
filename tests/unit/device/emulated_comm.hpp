#pragma once
// An emulation of NCCL's communicators: ranks, in one process or in several, exchange their values by a file in memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/plugin.h"

namespace mv::device::emulation {

/// A rank's end. Nothing waits: poll() looks whether the other ranks have come.
class Comm {
 public:
  static constexpr int32_t kMostRanks = 16;

  Comm(const mv_device_comm_id& id, int32_t ranks, int32_t rank);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  bool is_open() const { return header_ != nullptr; }
  bool is_idle() const { return state_ == State::kIdle; }
  /// False if the values are too many. `stalls`: the other ranks never get this rank's values.
  bool begin(std::vector<mv_device_part> parts, int32_t reduction, bool stalls);
  /// Whether all that was begun is done. The results are written by the call that sees the last rank's values.
  bool poll();

 private:
  struct Header;
  enum class State { kMaking, kIdle, kReducing };
  uint64_t place(int32_t rank, uint64_t number) const;
  void reduce();

  const std::string path_;
  const int32_t ranks_, rank_;
  int file_ = -1;
  Header* header_ = nullptr;
  State state_ = State::kMaking;
  uint64_t number_ = 0;  ///< of the current all-reduce, or of the last
  std::vector<mv_device_part> parts_;
  int32_t reduction_ = 0;
};

}  // namespace mv::device::emulation
