#pragma once
// Staging: copies in the host's memory of callers' arrays that are in the memory of devices, for what computes or sends on the host.

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "api/call/options.hpp"
#include "tensor/device.hpp"

namespace mv::api {

/// One thread at a time.
class Staging {
 public:
  enum class Use { kNone, kRead, kWritten, kBoth };

  /// The copy of an array on a device.
  base::Result<std::byte*> stage(const std::byte* memory, size_t bytes, Use use, tensor::Device& device);
  /// The copy of an array, or the array itself if it is not on a device, or not used. Without `find` there are no devices.
  base::Result<std::byte*> stage(const std::byte* memory, size_t bytes, Use use, const FindDevice& find);
  bool has_copies() const { return !copies_.empty(); }

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

  /// Who copies the results of a call: its waiter, unless a signal ends the wait. Otherwise the thread on which the operation ends.
  enum class Turn { kWaits, kEnded, kLeft };
  template <typename Calls, typename Start>
  friend Started run_staged(Calls&, const std::shared_ptr<Staging>&, const CallOptions&, const Start&);

  std::vector<Copy> copies_;
  std::atomic<Turn> turn_{Turn::kLeft};
};

/// Carries out start(options) -> Started, whose arrays are staged; `staging` may be null. The results are copied back before the call ends.
/// @param calls  Calls or Node
template <typename Calls, typename Start>
Started run_staged(Calls& calls, const std::shared_ptr<Staging>& staging, const CallOptions& options, const Start& start) {
  if (staging == nullptr) return start(options);
  const bool blocks = options.mode == Mode::kBlocking;
  if (blocks && !options.keep_on_interrupt) {
    Started started = start(options);
    if (started.status.ok()) started.status = staging->finish();
    return started;
  }
  // As a part of a call that ends when the results are copied.
  CallOptions part = options;
  part.mode = Mode::kAsync;
  part.tag = 0;
  part.group = calls.group(options);
  using Turn = Staging::Turn;
  if (blocks) staging->turn_ = Turn::kWaits;
  Started started = start(part);
  started.call = nullptr;
  calls.close_group(part.group, [staging] {
    Turn waits = Turn::kWaits;
    return staging->turn_.compare_exchange_strong(waits, Turn::kEnded) ? base::Status() : staging->finish();
  });
  if (!started.status.ok()) {
    static_cast<void>(calls.cancel(part.group));
    return started;
  }
  if (!blocks) return {{}, std::move(part.group)};
  bool alive = false;
  started.status = calls.wait(part.group, base::Nanos(0), &alive);
  Turn waits = Turn::kWaits;
  const bool is_left = alive && staging->turn_.compare_exchange_strong(waits, Turn::kLeft);
  if (is_left) started.call = std::move(part.group);
  if (!is_left && (alive || started.status.ok())) started.status = staging->finish();
  return started;
}

}  // namespace mv::api
