#pragma once
// Calls: begins the calls of callers' threads on a node's loop, waits for them, withdraws them, returns finished ones.

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "api/call/call.hpp"
#include "api/call/options.hpp"
#include "api/call/small_changes.hpp"
#include "base/filling.hpp"
#include "runtime/runtime.hpp"
#include "tensor/heap.hpp"

namespace mv::api {

/// Any thread. Outlives its calls. The runtime must end before this is destroyed, because its engines hold calls.
class Calls {
 public:
  explicit Calls(runtime::Runtime& runtime) : runtime_(runtime), loop_(runtime.loop()) {}
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  runtime::Runtime& runtime() const { return runtime_; }
  const runtime::Settings& settings() const { return runtime_.settings(); }
  const runtime::Identity& identity() const { return runtime_.identity(); }
  transport::Loop& loop() const { return loop_; }
  engine::Member& member() const { return runtime_.member(); }
  void on_loop(const std::function<void()>& work) const { runtime_.on_loop(work); }
  void read_on_loop(const std::function<void()>& read) const { runtime_.read_on_loop(read); }
  base::Status ended() const { return runtime_.ended(); }
  const Devices& devices() const { return devices_; }
  /// Before the first call.
  void set_devices(Devices devices) { devices_ = std::move(devices); }

  // ---- beginning a call

  /// The absolute deadline for these options. `gated`: the call may wait for other workers.
  base::Nanos deadline(const CallOptions& options, bool gated) const;
  CallRef make_call(const CallOptions& options, bool gated) { return std::make_shared<Call>(finished_, options, deadline(options, gated)); }
  /// See Node::group().
  CallRef group(const CallOptions& options) { return make_call(options, false); }
  static void close_group(const CallRef& group, std::function<base::Status()> finish) { group->close_group(std::move(finish)); }
  /// Begins a call on the loop, runs `meanwhile`, if given, on this thread, and waits if the call is blocking.
  Started run(const CallRef& call, const CallOptions& options, table::Request&& request, const std::function<void()>& meanwhile);
  /// Begins an engine's operation on the loop, which completes `call`, and waits if the call is blocking.
  Started start(const CallRef& call, const CallOptions& options, transport::Task begin);
  /// Waits for a call as a blocking one does, after running `begin`, if given, on the loop.
  Started wait_blocking(const CallRef& call, const CallOptions& options, transport::Task begin);
  /// Begins a fire-and-forget call and returns.
  void forget(table::Request&& request, const std::function<void()>& meanwhile);
  /// The same for a small change, which may share a message with earlier ones. `change`: ids and values.
  void forget_small(const table::TableViewRef& table, const table::SmallForm& form, std::span<const std::byte> change, uint64_t reserved);
  /// Blocks while too many bytes of asynchronous calls are in flight. Returns the reservation,
  /// which the call takes over.
  base::Result<uint64_t> reserve(uint64_t bytes, const CallOptions& options);
  /// Releases the reservation of a call that did not begin.
  void give_back(uint64_t reserved) { member().tables().in_flight().fetch_sub(reserved, std::memory_order_relaxed); }
  /// Copies the values that an asynchronous call sends. Large copies use recycled memory, which servers of this machine
  /// read directly.
  base::PayloadRef snapshot(std::span<const std::byte> bytes);
  /// Like snapshot(), but only the first piece of each range is copied. The caller copies the rest when the call is under
  /// way: Filling::copy_some(). Null if there is no recycled memory.
  base::PayloadRef begin_snapshot(std::span<const std::byte> bytes, std::vector<base::Filling::Range> ranges, std::shared_ptr<base::Filling>* filling);
  /// A block of that recycled memory, to be filled.
  base::Result<std::shared_ptr<tensor::Block>> buffer(uint64_t bytes) { return snapshots_.allocate(bytes, tensor::Heap::Content::kAnything); }

  // ---- ending a call; see Node

  base::Status wait(const CallRef& call, base::Nanos timeout, bool* alive);
  base::Status result(const CallRef& call) const { return call->done() ? call->status() : ended(); }
  void release(const CallRef& call);
  base::Status cancel(const CallRef& call);
  base::Result<std::vector<int64_t>> poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until);
  int event_fd() const { return finished_.event_fd(); }
  void callbacks_due(bool any);
  /// Makes mv_poll() return because the node has broken down.
  void tell_pollers() noexcept { finished_.also_readable(true); }
  base::Status wait_until(const std::function<bool()>& done, base::Nanos timeout);
  transport::Driven drive_until(const std::function<bool()>& done, base::Nanos until, transport::Task begin = {});
  void wake() { loop_.wake_waiters(); }
  /// Async-signal-safe.
  void abandon_after_fork() noexcept { finished_.close_descriptor(); }

 private:
  void withdraw(const CallRef& call, mv_status code);
  base::Status wait_for(const std::function<bool()>& done, base::Nanos until);

  runtime::Runtime& runtime_;
  transport::Loop& loop_;
  Devices devices_;
  FinishedList finished_{[this] {
    if (!loop_.driven_by_me()) loop_.wake_waiters();  // the driver checks by itself
  }};
  tensor::Heap snapshots_;
  SmallChanges small_changes_{loop_};
  std::atomic<bool> told_of_limit_{false};
};

}  // namespace mv::api
