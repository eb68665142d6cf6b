#include "api/group/shared_queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "api/group/signals_blocked.hpp"

namespace mv::api {

namespace {

/// If callers have waited kPromptInARow times in a row, each time within kPrompt after the start, the thread polls for
/// operations every kPollEvery instead of being woken for each one; after kFailedPolls polls without one it sleeps again.
/// Guesses: a wake-up takes 5 to 50 us. It is a negligible part of a large operation, which may run while its caller
/// computes.
constexpr int kPromptInARow = 4, kFailedPolls = 10;
constexpr base::Nanos kPrompt = std::chrono::microseconds(200), kPollEvery = std::chrono::microseconds(500);
constexpr uint64_t kLarge = 64 << 10;

bool is_large(const collective::Operation& operation) {
  uint64_t bytes = 0;
  for (const collective::Array& array : operation.out) bytes += array.bytes();
  return bytes > kLarge;
}

/// Short enough to be copied without an allocation.
base::Status no_memory() { return base::Status(MV_ENOMEM, "out of memory"); }

}  // namespace

SharedQueue::SharedQueue(transport::Loop& loop, std::shared_ptr<intranode::RankContext> context, collective::GroupRef messages,
                         ByMessages by_messages, base::CallerTrace* trace)
    : loop_(loop), context_(std::move(context)), messages_(std::move(messages)), by_messages_(std::move(by_messages)), trace_(trace) {
  if (trace_ != nullptr) context_->measure();
}

SharedQueue::~SharedQueue() { end(); }

void SharedQueue::end() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// ------------------------------------------------------------ turns

SharedQueue::Turn SharedQueue::try_turn() {
  std::unique_lock lock(mutex_);
  return try_turn(lock);
}

/// Unlocks `lock` on success.
SharedQueue::Turn SharedQueue::try_turn(std::unique_lock<std::mutex>& lock) {
  if (taken_ || !jobs_.empty()) return {};
  taken_ = true;
  count(lock);
  return Turn(*this);
}

base::Result<SharedQueue::Turn> SharedQueue::turn(base::Nanos until) {
  struct Waiter {
    SharedQueue& queue;
    ~Waiter() {
      std::lock_guard lock(queue.mutex_);
      --queue.waiting_;
    }
  };
  std::unique_lock lock(mutex_);
  if (Turn mine = try_turn(lock)) return mine;
  ++waiting_;  // before unlocking: the operation that ends next then wakes this thread
  stop_polling();
  lock.unlock();
  changed_.notify_all();
  const Waiter waiter{*this};
  while (true) {
    switch (loop_.drive_until([this] { return pending_.load(std::memory_order_acquire) == 0; }, until)) {
      case transport::Driven::kDone:
        if (Turn mine = try_turn()) return mine;
        break;
      case transport::Driven::kTimeout:
        return base::Status(MV_ETIMEOUT, "the deadline passed while earlier operations of the group were running; this one was not started");
      case transport::Driven::kInterrupted:
        return base::Status(MV_EINTR, "a signal interrupted the wait for earlier operations of the group; this one was not started");
      case transport::Driven::kBroken:
        return *loop_.defect();
      case transport::Driven::kStopped:
        return base::Status(MV_ESTATE, "the node is shutting down");
    }
  }
}

void SharedQueue::end_turn() {
  std::unique_lock lock(mutex_);
  taken_ = false;
  count(lock);
}

/// Publishes a change, and wakes the threads that have to do with it: a wake-up takes longer than a small operation.
/// Unlocks `lock`.
void SharedQueue::count(std::unique_lock<std::mutex>& lock) {
  const size_t pending = jobs_.size() + (taken_ ? 1 : 0);
  pending_.store(pending, std::memory_order_release);
  const bool has_job = !taken_ && !jobs_.empty() && !polls_, is_awaited = waiting_ > 0, is_ending = ends_ || withdrawing_ > 0;
  lock.unlock();
  if (has_job || is_ending) changed_.notify_all();
  if (pending == 0 && is_awaited) loop_.wake_waiters();
}

void SharedQueue::note_wait(bool is_prompt) {
  was_awaited_ = true;
  prompt_in_a_row_ = is_prompt ? std::min(prompt_in_a_row_ + 1, kPromptInARow) : 0;
}

/// From now on the thread is woken for each operation. Under the lock.
void SharedQueue::stop_polling() {
  prompt_in_a_row_ = 0;
  polls_ = false;
}

/// A queued operation. Only its call uses it.
class SharedQueue::Queued final : public base::Work {
 public:
  Queued(std::weak_ptr<SharedQueue> queue, Call& call, base::Nanos since) : queue_(std::move(queue)), call_(call), since_(since) {}
  void withdraw(mv_status code) override {
    if (const auto queue = queue_.lock()) queue->withdraw(call_, code);  // else no operation is left
  }
  bool is_on_loop() const override { return false; }
  mv_status help() override {
    const auto queue = queue_.lock();
    return queue != nullptr ? queue->help(call_, since_) : MV_OK;
  }

 private:
  const std::weak_ptr<SharedQueue> queue_;
  Call& call_;
  const base::Nanos since_;
};

void SharedQueue::push(Job job, Awaited is_awaited) {
  job.work = std::make_shared<Queued>(weak_from_this(), *job.call, loop_.now());
  job.call->begin(job.work, is_large(job.operation) ? Call::MayHelp::kNo : Call::MayHelp::kYes);
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { serve(); });
  }
  const bool is_of_thread = is_awaited == Awaited::kYes || is_large(job.operation) || collective::is_by_messages(job.operation.kind);
  if (is_of_thread || !std::exchange(was_awaited_, false)) stop_polling();
  job.begun ? jobs_.push_front(std::move(job)) : jobs_.push_back(std::move(job));
  count(lock);
}

void SharedQueue::serve() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    wait_for_job(lock);
    if (jobs_.empty()) return;
    run(next_job(), lock);
    lock.lock();
  }
}

/// Or for the end. While it polls at intervals, it leaves a job to its caller until the second poll.
void SharedQueue::wait_for_job(std::unique_lock<std::mutex>& lock) {
  int in_vain = 0;
  while (true) {
    const bool is_due = (!jobs_.empty() && !taken_) || (ends_ && jobs_.empty());
    if (in_vain > kFailedPolls || (in_vain > 1 && is_due)) prompt_in_a_row_ = 0;
    if (prompt_in_a_row_ < kPromptInARow || ends_) {
      if (is_due) return;
      changed_.wait(lock);
      in_vain = 0;
    } else {
      const uint64_t ended = ended_;
      polls_ = true;
      changed_.wait_for(lock, kPollEvery);
      polls_ = false;
      in_vain = ended_ == ended ? in_vain + 1 : 0;
    }
  }
}

/// Under the lock. Takes the turn before the job leaves the queue: other callers see one or the other.
SharedQueue::Job SharedQueue::next_job() {
  taken_ = true;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

/// Requires the turn. False if a signal interrupted the operation, which continues.
bool SharedQueue::attempt(Job& job) noexcept {
  try {
    base::Status status = job.begun ? context_->finish(job.call->deadline()) : carry_out(job.operation, job.call->deadline());
    if (status.code() == MV_EINTR && context_->broken().ok()) {
      job.begun = true;
      return false;
    }
    if (status.code() == MV_EINTR) status = context_->broken();  // it broke while the signal's handler ran
    status = settle(std::move(status));
    if (status.ok() && collective::is_by_messages(job.operation.kind)) status = by_messages_(job.operation, job.call->deadline());
    job.call->complete(status);
  } catch (...) {
    give_up(no_memory());
    job.call->complete(no_memory());
  }
  return true;
}

/// Unlocks `lock`.
void SharedQueue::run(Job job, std::unique_lock<std::mutex>& lock) noexcept {
  lock.unlock();
  while (!attempt(job)) continue;
  lock.lock();
  taken_ = false;
  ++ended_;
  count(lock);
}

/// The caller of the next operation waits for it. On its own thread, the operation begins without a wake-up of the queue's
/// thread, which takes longer than most. After a signal, that thread continues it.
mv_status SharedQueue::help(const Call& call, base::Nanos since) noexcept {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);  // the thread must not end while it has the turn
  const mv_status done = help_here(call, since);
  pthread_setcancelstate(before, nullptr);
  return done;
}

mv_status SharedQueue::help_here(const Call& call, base::Nanos since) noexcept {
  const bool is_prompt = loop_.now() - since < kPrompt;
  std::unique_lock lock(mutex_);
  if (taken_ || jobs_.empty() || jobs_.front().call.get() != &call || collective::is_by_messages(jobs_.front().operation.kind)) {
    if (jobs_.empty()) return note_wait(is_prompt), MV_OK;  // the thread was faster
    stop_polling();  // there are some that their callers do not carry out
    count(lock);
    return MV_OK;
  }
  note_wait(is_prompt);
  taken_ = true;
  Job& job = jobs_.front();  // stays there: nothing has to be put back
  lock.unlock();
  const bool goes_on = !attempt(job);
  lock.lock();
  if (goes_on) stop_polling();
  const Job ended = goes_on ? Job{} : next_job();
  taken_ = false;
  ++ended_;
  count(lock);
  return goes_on ? MV_EINTR : MV_OK;
}

// ------------------------------------------------------------ operations

base::Status SharedQueue::carry_out(const collective::Operation& operation, base::Nanos deadline) noexcept {
  try {
    if (trace_ != nullptr) return carry_out_noting(operation, deadline);
    base::Status status = context_->begin(operation);
    return status.ok() ? context_->finish(deadline) : status;
  } catch (...) {
    give_up(no_memory());
    return no_memory();
  }
}

/// An operation that a signal interrupts is noted up to there.
base::Status SharedQueue::carry_out_noting(const collective::Operation& operation, base::Nanos deadline) {
  const base::Nanos since = loop_.now();
  base::Status status = context_->begin(operation);
  if (!status.ok()) return status;
  status = context_->finish(deadline);
  const intranode::RankContext::Waited waited = context_->longest_wait();
  const auto count = [](base::Nanos span) { return static_cast<uint64_t>(span.count()); };
  std::array<base::TraceEvent, 1 + intranode::Slices::kMostOfAll> events;
  size_t noted = 0;
  const base::Nanos until = loop_.now();
  events[noted++] = {count(since), count(until), messages_->members().peers[waited.on], count(waited.span), 0, base::TraceKind::kGroup,
                     static_cast<uint8_t>(operation.kind)};
  for (const intranode::Slices::Slice& slice : context_->slices(until))
    events[noted++] = {count(slice.begin), count(slice.end), base::kNobody, count(since), 0, base::TraceKind::kPart,
                       static_cast<uint8_t>(slice.part)};
  trace_->note(std::span(events).first(noted));
  return status;
}

base::Status SharedQueue::settle(base::Status status) {
  if (status.ok() || context_->broken().ok()) return status;
  loop_.post_or_break([group = messages_, status] { group->break_group(status, true); });
  return base::error(status.code(), "{}; the group is broken: {}", status.text(), collective::kAfterBreak);
}

void SharedQueue::give_up(const base::Status& why) noexcept {
  context_->give_up(why);
  try {
    loop_.post_or_break([group = messages_, why] { group->break_group(why, true); });
  } catch (const std::bad_alloc& none) {
    loop_.break_down(&none);
  }
}

/// Ends this call and, because the other ranks count on this one, the group. Returns when the call has ended.
void SharedQueue::withdraw(const Call& call, mv_status code) {
  give_up(base::error(code, "an operation of the group was withdrawn, which broke the group"));
  std::unique_lock lock(mutex_);
  ++withdrawing_;
  stop_polling();
  changed_.notify_all();
  changed_.wait(lock, [&] { return call.done(); });  // give_up() ends every wait of the context
  --withdrawing_;
}

}  // namespace mv::api
