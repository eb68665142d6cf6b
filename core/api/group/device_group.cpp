#include "api/group/device_group.hpp"

#include <algorithm>
#include <utility>

#include "api/group/signals_blocked.hpp"
#include "api/group/stage.hpp"

namespace mv::api {

using collective::Operation;

namespace {

/// Short enough to be copied without an allocation.
base::Status out_of_memory() { return base::Status(MV_ENOMEM, "out of memory"); }

}  // namespace

bool may_use_devices(Calls& calls) {
  const std::string& setting = calls.settings().collective;
  return (setting == "auto" || setting == "nccl") && calls.devices().may_exist != nullptr && calls.devices().may_exist();
}

DeviceGroup::DeviceGroup(Calls& calls, GroupRef below, std::shared_ptr<MessageGroup> messages)
    : calls_(calls), below_(std::move(below)), messages_(std::move(messages)),
      reducer_(calls, messages_, [this](Operation operation, base::Nanos deadline) { return run_below(std::move(operation), deadline); }) {}

DeviceGroup::~DeviceGroup() {
  bool has_jobs = false;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    has_jobs = !is_idle();
  }
  const bool in_order = !has_jobs && !messages_->engine()->ends()->broken;
  if (has_jobs) messages_->leave();  // ends the operation under way
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  reducer_.end(in_order);
}

GroupInfo DeviceGroup::info() {
  GroupInfo info = below_->info();
  info.operations -= std::min(info.operations, reducer_.more_operations());
  const DeviceReducer::About about = reducer_.about();
  const bool reduces = !about.collective.empty();
  info.collective_why = reduces ? fmt::format("{}; other all-reduces: {} ({})", about.why, info.collective, info.collective_why)
                                : fmt::format("{}; {}", info.collective_why, about.why);
  if (reduces) info.collective = about.collective;
  return info;
}

// ------------------------------------------------------------ operations

/// Whether an operation can go to the group below at once: no other one waits, and the ranks do not ask each other.
bool DeviceGroup::take_directly(const Operation& operation, uint64_t* number) {
  const std::lock_guard lock(mutex_);
  *number = ++numbers_;
  return is_idle() && !(DeviceReducer::suits(operation) && reducer_.asks_at(*number));
}

Started DeviceGroup::run(Operation&& operation, const CallOptions& options) {
  if (collective::is_between_two(operation.kind)) return below_->run(std::move(operation), options);
  const collective::Setting& setting = messages_->engine()->setting();
  if (base::Status wrong = check_operation(operation, setting.rank, setting.size); !wrong.ok()) return {std::move(wrong), nullptr};
  uint64_t number = 0;
  if (take_directly(operation, &number)) return run_staged_below(std::move(operation), options);
  const auto call = calls_.make_call(options, true);
  push({std::move(operation), call, number, nullptr});
  if (options.mode != Mode::kBlocking) return {{}, call};
  return await(call, options);
}

/// Only all-reduces that suit may still be on devices.
Started DeviceGroup::run_staged_below(Operation&& operation, const CallOptions& options) {
  std::shared_ptr<Staging> staging;
  if (DeviceReducer::suits(operation)) {
    const collective::Setting& setting = messages_->engine()->setting();
    auto staged = stage_operation(operation, static_cast<uint64_t>(setting.rank), static_cast<uint64_t>(setting.size), calls_.devices().find);
    if (!staged.ok()) {
      below_->give_up(staged.status());
      return {staged.status(), nullptr};
    }
    staging = std::move(staged).value();
  }
  return run_staged(calls_, staging, options, [&](const CallOptions& how) { return below_->run(std::move(operation), how); });
}

base::Status DeviceGroup::run_below(Operation operation, base::Nanos deadline) {
  CallOptions options;
  options.timeout = deadline == base::kNever ? base::kNever : std::max(base::Nanos{1}, deadline - calls_.loop().now());
  return run_staged_below(std::move(operation), options).status;
}

base::Result<collective::Shape> DeviceGroup::drain(const CallOptions& options) {
  if (base::Status idle = wait_idle(calls_.deadline(options, true)); !idle.ok()) return idle;
  auto shape = below_->drain(options);
  if (shape.ok() && shape.value().finished) reducer_.begin_anew();
  return shape;
}

base::Result<CustomReductionRef> DeviceGroup::custom(Operation operation, const CallOptions& options) {
  if (base::Status idle = wait_idle(calls_.deadline(options, true)); !idle.ok()) return idle;
  {
    const std::lock_guard lock(mutex_);
    ++numbers_;
  }
  return below_->custom(std::move(operation), options);
}

// ------------------------------------------------------------ the queue

void DeviceGroup::push(Job job) {
  const auto withdraw = [weak = weak_from_this(), call = job.call.get()](mv_status code) {
    if (const auto group = weak.lock()) group->withdraw(*call, code);  // else no operation is left
  };
  job.work = std::make_shared<base::WithdrawnBy>(withdraw, base::WithdrawnBy::On::kAnyThread);
  job.call->begin(job.work);
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      const SignalsBlocked blocked;
      thread_ = std::thread([this] { serve(); });
    }
    jobs_.push_back(std::move(job));
    has_jobs_ = true;
  }
  changed_.notify_all();
}

Started DeviceGroup::await(const std::shared_ptr<Call>& call, const CallOptions& options) {
  const transport::Driven driven = calls_.drive_until([&] { return call->done(); }, base::kNever);
  if (driven == transport::Driven::kInterrupted && options.keep_on_interrupt)
    return {base::Status(MV_EINTR, "a signal interrupted the wait; the call continues"), call};
  if (driven != transport::Driven::kDone) call->withdraw(driven == transport::Driven::kInterrupted ? MV_EINTR : MV_ESTATE);
  return {call->status(), nullptr};
}

/// Ends this call and, because the other ranks count on this one, the group. Returns when the call has ended.
void DeviceGroup::withdraw(const Call& call, mv_status code) {
  below_->give_up(base::error(code, "an operation of the group was withdrawn, which broke the group"));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return call.done(); });
}

void DeviceGroup::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    is_busy_ = true;
    lock.unlock();
    base::Status status = out_of_memory();
    try {
      status = carry_out(job);
    } catch (const std::exception&) {
      below_->give_up(out_of_memory());
    }
    job.call->complete(status);
    lock.lock();
    is_busy_ = false;
    has_jobs_ = !is_idle();
    const bool is_last = is_idle();
    lock.unlock();
    changed_.notify_all();
    if (is_last) calls_.wake();
    lock.lock();
  }
}

base::Status DeviceGroup::carry_out(Job& job) {
  const base::Nanos deadline = job.call->deadline();
  // This is known only now, after the operations before it.
  if (DeviceReducer::suits(job.operation) && reducer_.asks_at(job.number)) {
    const auto reduced = reducer_.reduce(job.operation, job.number, deadline);
    if (!reduced.ok()) return reduced.status();
    if (reduced.value()) return {};
  }
  return run_below(std::move(job.operation), deadline);
}

/// Waits until the operations that were called before have ended.
base::Status DeviceGroup::wait_idle(base::Nanos until) {
  if (!has_jobs_) return {};
  switch (calls_.drive_until([this] { return !has_jobs_; }, until)) {
    case transport::Driven::kDone:
      return {};
    case transport::Driven::kTimeout:
      return base::Status(MV_ETIMEOUT, "the deadline passed while earlier operations of the group were running; this one was not started");
    case transport::Driven::kInterrupted:
      return base::Status(MV_EINTR, "a signal interrupted the wait for earlier operations of the group; this one was not started");
    default:
      return calls_.ended();
  }
}

// ------------------------------------------------------------ the end

/// The group has ended, and so do its operations.
void DeviceGroup::finish_jobs() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_idle(); });
}

/// The group of the survivors makes its own communicator.
base::Result<GroupRef> DeviceGroup::shrink(const CallOptions& options) {
  auto shrunk = below_->shrink(options);
  if (!messages_->engine()->ends()->broken) return shrunk;
  finish_jobs();
  reducer_.end(false);
  return shrunk;
}

base::Result<GroupRef> DeviceGroup::grow(const Growth& growth, const CallOptions& options) {
  if (base::Status idle = wait_idle(calls_.deadline(options, true)); !idle.ok()) return idle;
  auto grown = below_->grow(growth, options);
  if (!messages_->engine()->ends()->broken) return grown;
  finish_jobs();
  reducer_.end(false);
  return grown;
}

base::Status DeviceGroup::close() {
  const bool in_order = !has_jobs_ && !messages_->engine()->ends()->broken;
  base::Status status = below_->close();
  finish_jobs();
  reducer_.end(in_order);
  return status;
}

base::Status DeviceGroup::abort(const std::string& reason) {
  base::Status status = below_->abort(reason);
  finish_jobs();
  reducer_.end(false);
  return status;
}

}  // namespace mv::api
