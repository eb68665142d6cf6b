#pragma once
// DeviceReducer: all-reduces of arrays that are on devices on all ranks, between the devices, by a library such as NCCL.
//
// Before each, the ranks agree on the operation as on any other, and on whether all arrays are on devices: one rank's may
// not be. So differences between their calls, draining ranks and lost ranks are noticed as always, and the library gets only
// operations that all ranks have begun. The first operation of that kind makes the communicator.
//
// A failed agreement costs one small all-reduce. After two failures in a row, the next 3 operations of any kind go through
// the host without asking; after three, 7; after more, 15. All ranks know the same results and count the same operations.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "api/group/message_group.hpp"
#include "tensor/communicator.hpp"

namespace mv::api {

/// Operations and asks_at() by one thread at a time, in the order of the group's operations.
class DeviceReducer {
 public:
  /// Carries out an operation on the host.
  using RunOnHost = std::function<base::Status(collective::Operation operation, base::Nanos deadline)>;

  DeviceReducer(Calls& calls, std::shared_ptr<MessageGroup> messages, RunOnHost run_on_host);
  ~DeviceReducer();

  /// Whether the library could reduce such an operation. The same on all ranks that make the same call. Any thread.
  static bool suits(const collective::Operation& operation);
  /// Whether the ranks still try to. Any thread.
  bool is_in_use() const { return !is_off_.load(std::memory_order_acquire); }
  /// Whether the ranks ask each other at this operation, if it suits. Operations of all kinds are numbered alike on all ranks.
  bool asks_at(uint64_t number) const { return is_in_use() && number >= ask_at_; }
  /// All ranks drain: the next operation is as after a success.
  void begin_anew() { failures_ = ask_at_ = 0; }

  /// False: nothing was reduced, and the host has to. An error has broken the group unless it is MV_EDISAGREE.
  base::Result<bool> reduce(const collective::Operation& operation, uint64_t number, base::Nanos deadline);

  /// Ends the communicator, after the operation under way. `in_order`: all that was begun has ended on this rank, and the
  /// group works. Any thread.
  void end(bool in_order) noexcept;

  /// What describes the group: "nccl" or "", and why.
  struct About {
    std::string collective, why;
  };
  About about() const;
  /// Operations on the host that the caller did not ask for.
  uint64_t more_operations() const { return more_operations_; }

 private:
  struct Record;
  enum class Wait { kDone, kDeadline, kBroken };
  tensor::Device* device_of(const collective::Operation& operation, base::Status& status) const;
  base::Result<bool> set_up(tensor::Device& device, base::Nanos deadline);
  base::Status begin_to_make(tensor::Device& device, const tensor::Communicator::Id& id);
  base::Status wait_until_made(base::Nanos deadline);
  base::Result<bool> is_ready_everywhere(const base::Status& mine, base::Nanos deadline);
  base::Result<Wait> wait(base::Nanos deadline);
  base::Status broken();
  base::Status give_up(const base::Status& why);
  void turn_off(const std::string& why);
  std::string find_obstacle(const std::vector<Record>& records) const;
  base::Status run_more(collective::Operation operation, base::Nanos deadline);

  Calls& calls_;
  const std::shared_ptr<MessageGroup> messages_;
  const RunOnHost run_on_host_;
  std::mutex using_;  ///< held during an operation; guards the members below
  std::unique_ptr<tensor::Communicator> communicator_;
  tensor::Device* device_ = nullptr;  ///< of the communicator
  std::string library_;
  uint64_t failures_ = 0, ask_at_ = 0;
  std::atomic<uint64_t> more_operations_{0};
  std::atomic<bool> is_off_{false};
  mutable std::mutex mutex_;  ///< guards about_
  About about_{"", "NCCL is tried when all ranks first reduce arrays on devices"};
};

}  // namespace mv::api
