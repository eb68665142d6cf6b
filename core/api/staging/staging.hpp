#pragma once
// Staging: copies in the host's memory of callers' arrays that are in the memory of devices, for what computes or sends on the host.

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "api/call/options.hpp"
#include "engine/collective/operation.hpp"
#include "tensor/device.hpp"

namespace mv::api {

class Group;
class Node;

/// Finds the device in whose memory an address is; null: it is in the host's.
using FindDevice = std::function<base::Result<tensor::Device*>(const void* memory)>;

/// One thread at a time.
class Staging {
 public:
  /// Copies to the host what this rank's operation, which is checked, reads, and lets it use the copies. Null: nothing is on a device.
  static base::Result<std::shared_ptr<Staging>> of_operation(collective::Operation& operation, uint64_t rank, uint64_t ranks, const FindDevice& find);
  /// Likewise for arrays that are read and written.
  static base::Result<std::shared_ptr<Staging>> of_arrays(std::vector<collective::Array>& arrays, const FindDevice& find);

  /// Copies the results back.
  base::Status finish() const;

 private:
  struct Copy {
    tensor::Device* device;
    void* memory;  ///< of the caller
    std::shared_ptr<tensor::Block> block;
    size_t bytes;
    bool is_result;
  };
  enum class Use { kNone, kRead, kWritten, kBoth };
  static Use use_of_out(const collective::Operation& operation, uint64_t rank);
  /// The copy of an array, or the array itself if it is not on a device.
  base::Result<std::byte*> stage(const std::byte* memory, size_t bytes, Use use, const FindDevice& find);

  /// Who copies the results of a call: its waiter, unless a signal ends the wait. Otherwise the thread on which the operation ends.
  enum class Turn { kWaits, kEnded, kLeft };
  friend Started run_staged(Node&, Group&, collective::Operation, const std::shared_ptr<Staging>&, const CallOptions&);

  std::vector<Copy> copies_;
  std::atomic<Turn> turn_{Turn::kLeft};
};

/// Carries out an operation whose arrays are staged; `staging` may be null. Like Group::run().
Started run_staged(Node& node, Group& group, collective::Operation operation, const std::shared_ptr<Staging>& staging, const CallOptions& options);

}  // namespace mv::api
