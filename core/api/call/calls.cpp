// Calls of callers' threads on a node: begin, wait, withdraw, poll.

#include "api/call/calls.hpp"

#include <cstring>

#include "base/log.hpp"

namespace mv::api {

namespace {
/// Approximate memory of an unfinished call besides its payload. Many small calls use memory too.
constexpr uint64_t kCallBytes = 512;
/// From this size on, faulting in fresh pages costs more than copying into them.
constexpr size_t kLargeBytes = 64 << 10;
}  // namespace

base::Nanos Calls::deadline(const CallOptions& options, bool gated) const {
  const base::Nanos span = options.timeout.count() != 0 ? options.timeout : gated ? settings().gate_timeout : settings().timeout;
  return base::after(loop_.now(), span);
}

/// Ends the call with this code and a text that states the outcome. A call that its caller cannot withdraw continues.
void Calls::withdraw(const CallRef& call, mv_status code) {
  const auto is_elsewhere = [](const CallRef& one) {
    const auto work = one->work();
    return work != nullptr && !work->is_on_loop();
  };
  if (is_elsewhere(call)) return call->withdraw(code);
  for (const CallRef& part : call->open_parts())  // may wait for another thread, which may need the loop
    if (is_elsewhere(part)) part->withdraw(code);
  on_loop([&] {
    for (const CallRef& part : call->open_parts()) part->withdraw(code);
    call->withdraw(code);
  });
}

/// As Loop::drive_until().
transport::Driven Calls::drive_until(const std::function<bool()>& done, base::Nanos until, transport::Task begin) {
  base::CallerTrace& trace = runtime_.callers_trace();
  if (!trace.on()) return loop_.drive_until(done, until, std::move(begin));
  const uint64_t since = trace.ticks();
  const base::CallerTrace::Open open(trace, since);
  const transport::Driven driven = loop_.drive_until(done, until, std::move(begin));
  trace.note({since, trace.ticks(), base::kNobody, 0, 0, base::TraceKind::kBlocked, 0});
  return driven;
}

/// Runs `begin`, if given, on the loop: on this very thread if no other drives it, which saves waking another thread.
Started Calls::wait_blocking(const CallRef& call, const CallOptions& options, transport::Task begin) {
  const auto is_over = [&] { return call->done() || (options.or_until != nullptr && (*options.or_until)()); };
  const transport::Driven driven = drive_until(is_over, base::kNever, std::move(begin));
  if (driven == transport::Driven::kDone) return call->done() ? Started{call->status(), nullptr} : Started{{}, call};
  if (driven != transport::Driven::kInterrupted) return {ended(), nullptr};
  if (options.keep_on_interrupt) return {base::Status(MV_EINTR, "a signal interrupted the wait; the call continues"), call};
  withdraw(call, MV_EINTR);
  if (loop_.defect() != nullptr && !call->done()) return {ended(), nullptr};
  if (!call->done()) return {base::Status(MV_EINTR, "a signal interrupted the wait; the call continues without a waiter"), nullptr};
  return {call->status(), nullptr};
}

Started Calls::run(const CallRef& call, const CallOptions& options, table::Request&& request, const std::function<void()>& meanwhile) {
  request.operation = call;
  if (request.kind == table::OpKind::kChange) call->set_table(request.table);
  transport::Task begin = [this, request = std::move(request)]() mutable { member().tables().begin(std::move(request)); };
  const bool blocking = options.mode == Mode::kBlocking;
  if (blocking && !meanwhile) return wait_blocking(call, options, std::move(begin));
  loop_.post(std::move(begin));
  runtime_.no_way_back(meanwhile);  // this process's own part; the rest is on its way and may refer to the caller's memory
  return blocking ? wait_blocking(call, options, {}) : Started{{}, call};
}

void Calls::forget(table::Request&& request, const std::function<void()>& meanwhile) {
  loop_.post([this, request = std::move(request)]() mutable { member().tables().begin(std::move(request)); });
  runtime_.no_way_back(meanwhile);  // this process's own part; the rest is on its way and may refer to the caller's memory
}

void Calls::forget_small(const table::TableViewRef& table, const table::SmallForm& form, std::span<const std::byte> change, uint64_t reserved) {
  small_changes_.add(member().tables(), table, form, change, reserved);
}

base::Result<uint64_t> Calls::reserve(uint64_t bytes, const CallOptions& options) {
  bytes += kCallBytes;
  std::atomic<uint64_t>& in_flight = member().tables().in_flight();
  const auto fits = [&] {
    const uint64_t now = in_flight.load(std::memory_order_relaxed);
    return now == 0 || now + bytes <= settings().inflight_bytes;
  };
  if (!fits()) {
    if (!told_of_limit_.exchange(true))
      base::log_warn("{} bytes of asynchronous adds are unfinished (inflight_bytes): calls wait until some are done", in_flight.load());
    const transport::Driven driven = drive_until(fits, deadline(options, identity().sync));
    if (driven == transport::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait for earlier adds; nothing was sent");
    if (driven == transport::Driven::kStopped || driven == transport::Driven::kBroken) return ended();
    if (driven != transport::Driven::kDone) return base::Status(MV_ETIMEOUT, "earlier adds are still unfinished; not applied: nothing was sent");
  }
  in_flight.fetch_add(bytes, std::memory_order_relaxed);
  return bytes;
}

base::PayloadRef Calls::snapshot(std::span<const std::byte> bytes) {
  if (bytes.size() < kLargeBytes) return base::Payload::copy(bytes);
  const auto block = snapshots_.allocate(bytes.size(), tensor::Heap::Content::kAnything);
  if (!block.ok()) return base::Payload::copy(bytes);
  std::byte* const to = block.value()->data();
  std::memcpy(to, bytes.data(), bytes.size());
  return base::Payload::kept({to, bytes.size()}, block.value());
}

base::PayloadRef Calls::begin_snapshot(std::span<const std::byte> bytes, std::vector<base::Filling::Range> ranges, std::shared_ptr<base::Filling>* filling) {
  const auto block = snapshots_.allocate(bytes.size(), tensor::Heap::Content::kAnything);
  if (!block.ok()) return nullptr;
  const auto copy = [to = block.value()->data(), bytes](size_t begin, size_t end) { std::memcpy(to + begin, bytes.data() + begin, end - begin); };
  *filling = std::make_shared<base::Filling>(block.value(), std::move(ranges), copy);
  (*filling)->copy_some();
  return base::Payload::kept({block.value()->data(), bytes.size()}, block.value());
}

Started Calls::start(const CallRef& call, const CallOptions& options, transport::Task begin) {
  if (options.mode == Mode::kBlocking) return wait_blocking(call, options, std::move(begin));
  loop_.post(std::move(begin));
  return {{}, call};
}

base::Status Calls::wait(const CallRef& call, base::Nanos timeout, bool* alive) {
  const base::Nanos until = timeout.count() == 0 ? base::kNever : base::after(loop_.now(), timeout);
  const bool helps = until >= call->deadline();  // a shorter wait must end in time
  if (helps && call->help() == MV_EINTR) {
    *alive = !call->done();
    return *alive ? base::Status(MV_EINTR, "a signal interrupted the wait; the request continues") : result(call);
  }
  const transport::Driven driven = drive_until([&] { return call->done(); }, until);
  *alive = !call->done() && driven != transport::Driven::kBroken;
  if (!*alive) return result(call);
  if (driven == transport::Driven::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait; the request continues");
  if (driven == transport::Driven::kStopped) return ended();
  return base::Status(MV_ETIMEOUT, "not finished yet; the request continues");
}

void Calls::release(const CallRef& call) {
  if (call->done() && call->status().ok()) return;
  loop_.post([this, call] {
    call->release([this](table::TableView* table, const base::Status& error) { member().tables().changes().tell_later(table, error); });
  });
}

base::Status Calls::cancel(const CallRef& call) {
  withdraw(call, MV_ECANCELED);
  return result(call);
}

base::Result<std::vector<int64_t>> Calls::poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until) {
  const auto is_due = [&] { return (most > 0 && !finished_.empty()) || (or_until && or_until()); };
  if (!is_due() && timeout.count() != 0) {
    const base::Status waited = wait_for(is_due, base::after(loop_.now(), timeout));
    if (!waited.ok() && waited.code() != MV_ETIMEOUT) return waited;
  }
  return finished_.take(most);
}

void Calls::callbacks_due(bool any) {
  finished_.also_readable(any);
  if (any) loop_.wake_waiters();
}

base::Status Calls::wait_until(const std::function<bool()>& done, base::Nanos timeout) {
  CallOptions options;
  options.timeout = timeout;
  return wait_for(done, deadline(options, false));
}

base::Status Calls::wait_for(const std::function<bool()>& done, base::Nanos until) {
  switch (drive_until(done, until)) {
    case transport::Driven::kDone:
      return {};
    case transport::Driven::kTimeout:
      return base::Status(MV_ETIMEOUT, "the deadline has passed");
    case transport::Driven::kInterrupted:
      return base::Status(MV_EINTR, "a signal interrupted the wait");
    case transport::Driven::kStopped:
    case transport::Driven::kBroken:
      break;
  }
  return ended();
}

}  // namespace mv::api
