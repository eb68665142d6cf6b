#pragma once
// What a caller asks for, from its beginning to its end: one object, whatever engine carries it out.

#include <polyverso/polyverso.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::base {

/// What an engine keeps of an operation while it carries it out. The engine holds it until the end.
class Work {
 public:
  virtual ~Work() = default;
  /// The caller stops waiting. When this returns, the operation is over, with `code` and a text that says what became of it, and the
  /// caller's memory is free. On the engine's thread.
  virtual void withdraw(mv_status code) = 0;
  /// Whether the engine's thread is the loop's; else any thread is.
  virtual bool is_on_loop() const { return true; }
};

/// Work that is known by what ends it.
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

/// Held by the caller, for whom it is what a request's handle stands for, and by the engine until it is over. So neither can end while
/// the other still needs it; and what there is to withdraw is asked of the operation, not of every engine.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  enum class State : uint8_t { kNew, kRunning, kOver };

  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// By the base clock; before it begins. The engine ends the operation with MV_ETIMEOUT by then, or soon after.
  void set_deadline(Nanos deadline) { deadline_ = deadline; }
  Nanos deadline() const { return deadline_; }

  /// The engine begins. On the engine's thread, or before others know of the operation.
  void begin(const std::shared_ptr<Work>& work) {
    work_ = work;
    set_state(State::kRunning);
  }
  /// On the thread that the work asks for. What has not begun, is over, or is nobody's to withdraw goes on.
  void withdraw(mv_status code) {
    if (const auto work = this->work(); work != nullptr && !done()) work->withdraw(code);
  }
  /// Who carries it out; null before and after. Any thread: the state is set after it.
  std::shared_ptr<Work> work() const { return state() == State::kNew ? nullptr : work_.lock(); }

  /// The end, once. Any thread. Without memory for the status' text its code alone is kept; throws what the one who hears of it throws.
  void complete(const Status& status);

  /// The operation that this one is a part of, or itself. Where one part has lost its server, the others end, too.
  virtual const Operation* whole() const { return this; }
  /// Whether it is a part of an operation that has failed already.
  virtual bool is_pointless() const { return false; }

  State state() const { return state_.load(std::memory_order_acquire); }
  bool done() const { return state() == State::kOver; }
  /// Once done().
  const Status& status() const { return status_; }

 private:
  /// Hears that it is over, and wakes who waits for it. The operation lives until this returns.
  virtual void ended(const Status& status) = 0;
  void set_state(State next);

  Nanos deadline_ = kNever;
  std::weak_ptr<Work> work_;  ///< weak: the engine's part holds the operation
  Status status_;
  std::atomic<State> state_{State::kNew};
};
using OperationRef = std::shared_ptr<Operation>;

}  // namespace mv::base
