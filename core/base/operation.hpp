#pragma once
// A caller's operation from start to end: one object, whichever engine runs it.

#include <polyverso/polyverso.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::base {

/// An engine's record of a running operation. The engine owns it until the end.
class Work {
 public:
  virtual ~Work() = default;
  /// The caller gives up. When this returns, the operation has ended, with `code` and a text that states the outcome,
  /// and the engine no longer uses the caller's memory. On the engine's thread.
  virtual void withdraw(mv_status code) = 0;
  /// Whether withdraw() must run on the loop; if not, any thread may call it.
  virtual bool is_on_loop() const { return true; }
  /// The caller is about to wait for the end. Work that a thread of its own would do may be done here, on the caller's
  /// thread, if the operation began with MayHelp::kYes. MV_EINTR: a signal interrupted it, and the work continues
  /// elsewhere.
  virtual mv_status help() { return MV_OK; }
};

/// Work that consists of a function that withdraws it.
class WithdrawnBy final : public Work {
 public:
  enum class On { kLoop, kAnyThread };
  explicit WithdrawnBy(std::function<void(mv_status code)> end, On on = On::kLoop) : end_(std::move(end)), on_(on) {}
  void withdraw(mv_status code) override { end_(code); }
  bool is_on_loop() const override { return on_ == On::kLoop; }

 private:
  const std::function<void(mv_status)> end_;
  const On on_;
};

/// One call of a caller, shared by the caller (through a request's handle) and, until it ends, by the engine. Each side
/// keeps it alive for the other. A withdrawal goes through the operation, without a search in the engines.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  enum class State : uint8_t { kNew, kRunning, kOver };
  enum class MayHelp : uint8_t { kNo, kYes };

  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// In time of base::Clock, before begin(). The engine ends the operation with MV_ETIMEOUT then, or soon after.
  void set_deadline(Nanos deadline) { deadline_ = deadline; }
  Nanos deadline() const { return deadline_; }

  /// The engine starts the operation. On the engine's thread, or before other threads know the operation.
  void begin(const std::shared_ptr<Work>& work, MayHelp may_help = MayHelp::kNo) {
    work_ = work;
    may_help_ = may_help;
    set_state(State::kRunning);
  }
  /// On the thread that the work requires. No effect on an operation that has not begun, has ended, or has no work
  /// left.
  void withdraw(mv_status code) {
    if (const auto work = this->work(); work != nullptr && !done()) work->withdraw(code);
  }
  /// On a caller's thread that will wait: see Work::help().
  mv_status help() {
    if (state() != State::kRunning || may_help_ == MayHelp::kNo) return MV_OK;
    const auto work = this->work();
    return work != nullptr ? work->help() : MV_OK;
  }
  /// The engine's record; null before begin() and after the end. Any thread: begin() publishes it with the state.
  std::shared_ptr<Work> work() const { return state() == State::kNew ? nullptr : work_.lock(); }

  /// Ends the operation, once. Any thread. If memory for the text runs out, only the code is kept. Throws what ended()
  /// throws.
  void complete(const Status& status);

  /// The operation that this one is a part of, or itself. If one part has lost its server, the other parts end, too.
  virtual const Operation* whole() const { return this; }
  /// Whether it is part of an operation that has already failed.
  virtual bool is_pointless() const { return false; }

  State state() const { return state_.load(std::memory_order_acquire); }
  bool done() const { return state() == State::kOver; }
  /// Valid once done().
  const Status& status() const { return status_; }

 private:
  /// Called at the end; wakes the waiter. The operation lives until this returns.
  virtual void ended(const Status& status) = 0;
  void set_state(State next);

  Nanos deadline_ = kNever;
  std::weak_ptr<Work> work_;  ///< weak, because the engine's record owns the operation
  MayHelp may_help_ = MayHelp::kNo;
  Status status_;
  std::atomic<State> state_{State::kNew};
};
using OperationRef = std::shared_ptr<Operation>;

}  // namespace mv::base
