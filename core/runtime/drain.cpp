// Runtime: a server hands its parts over before it leaves.

#include "base/log.hpp"
#include "runtime/runtime.hpp"

namespace mv::runtime {

base::Status Runtime::why_never_drain() {
  base::Status why;
  read_on_loop([&] { why = member_->drain().why_never(); });
  return why;
}

base::Status Runtime::drain(base::Nanos timeout) {
  struct Outcome {
    std::atomic<bool> over{false};
    base::Status status;
  };
  const auto outcome = std::make_shared<Outcome>();
  const auto begin = [this, outcome] {
    const auto end = [this, outcome](const base::Status& status) {
      outcome->status = status.ok() ? left_with_ : status;
      if (status.ok()) drained_ = true;
      outcome->over.store(true, std::memory_order_release);
    };
    finish_worker();
    if (left_) return member_->drain().begin(end);
    when_left_.push_back([this, end] { member_->drain().begin(end); });
  };
  const auto over = [outcome] { return outcome->over.load(std::memory_order_acquire); };
  const transport::Driven driven = loop_.drive_until(over, base::after(loop_.now(), timeout), begin);
  if (over()) return outcome->status;
  if (driven == transport::Driven::kInterrupted)
    return base::Status(MV_EINTR, "a signal interrupted the wait for the end of the drain, which continues: call again");
  if (driven != transport::Driven::kTimeout) return drained_ ? base::Status() : ended();
  std::string waits_for;
  read_on_loop([&] {
    waits_for = left_ ? member_->drain().waits_for() : "the end of this worker's calls";
    if (member_->drain().is_over()) drained_ = true;  // only some others do not know it yet
  });
  if (drained_) return {};
  return base::error(MV_ETIMEOUT, "the tables of this server are not handed over within {:.3g} s: it waits for {}",
                     base::seconds(timeout), waits_for.empty() ? "nothing" : waits_for);
}

}  // namespace mv::runtime
