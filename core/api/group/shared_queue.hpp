#pragma once
// SharedQueue: runs one rank's operations on a shared-memory group, one at a time, in the order of the calls. A
// blocking operation runs on the caller's thread if the group is free; so does the next one of the queue if its caller
// waits for it. The others run on the queue's own thread.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "api/call/call.hpp"
#include "base/trace.hpp"
#include "engine/collective/groups.hpp"
#include "intranode/rank_context.hpp"
#include "transport/loop/loop.hpp"

namespace mv::api {

/// Shared by the group, its thread, and withdrawals of its calls, which may follow the close of the group. Any thread.
class SharedQueue : public std::enable_shared_from_this<SharedQueue> {
 public:
  /// Carries out an operation by messages; returns when it has ended.
  using ByMessages = std::function<base::Status(const collective::Operation& operation, base::Nanos deadline)>;

  /// The loop must outlive end(), and `by_messages` must be callable until then. `messages` is the message group below,
  /// which is notified when an operation breaks this one.
  /// `trace`, if given, gets an event of each operation, and must outlive end().
  SharedQueue(transport::Loop& loop, std::shared_ptr<intranode::RankContext> context, collective::GroupRef messages, ByMessages by_messages,
              base::CallerTrace* trace = nullptr);
  ~SharedQueue();

  /// The right to use the context; the destructor returns it.
  class Turn {
   public:
    Turn() = default;
    explicit Turn(SharedQueue& queue) : queue_(&queue) {}
    Turn(Turn&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (queue_ != nullptr) queue_->end_turn();
    }
    explicit operator bool() const { return queue_ != nullptr; }

   private:
    SharedQueue* queue_ = nullptr;
  };
  /// Takes the turn at once, or fails if earlier operations are unfinished.
  Turn try_turn();
  /// Waits for the turn. MV_EINTR, MV_ETIMEOUT, MV_ESTATE: nothing has begun.
  base::Result<Turn> turn(base::Nanos until);

  struct Job {
    collective::Operation operation;
    std::shared_ptr<Call> call;
    bool begun;  ///< by a caller that a signal interrupted; it goes first
    std::shared_ptr<base::Work> work;  ///< set by the queue
  };
  class Queued;
  enum class Awaited { kNo, kYes };
  /// Queues the job for the thread, or for its caller if that waits for it first. kYes: a blocking call, which does not carry
  /// it out. If it throws std::bad_alloc or std::system_error, nothing has changed.
  void push(Job job, Awaited is_awaited = Awaited::kNo);

  /// Requires the turn. MV_EINTR after a signal: finish() continues it. Never throws: out of memory gives up the group.
  base::Status carry_out(const collective::Operation& operation, base::Nanos deadline) noexcept;
  /// Returns the final status of an operation. If the operation broke this group, breaks the message group too.
  base::Status settle(base::Status status);
  /// Ends the operation in progress and all later ones, and notifies the other ranks at once.
  void give_up(const base::Status& why) noexcept;
  /// Ends all operations and the thread. Call it after the context has left or given up, so that it does not
  /// wait. Not on the thread.
  void end();

 private:
  Turn try_turn(std::unique_lock<std::mutex>& lock);
  void end_turn();
  void serve() noexcept;
  void note_wait(bool is_prompt);
  void stop_polling();
  void wait_for_job(std::unique_lock<std::mutex>& lock);
  Job next_job();
  bool attempt(Job& job) noexcept;
  void run(Job job, std::unique_lock<std::mutex>& lock) noexcept;
  mv_status help(const Call& call, base::Nanos since) noexcept;
  mv_status help_here(const Call& call, base::Nanos since) noexcept;
  void count(std::unique_lock<std::mutex>& lock);
  void withdraw(const Call& call, mv_status code);
  base::Status carry_out_noting(const collective::Operation& operation, base::Nanos deadline);

  transport::Loop& loop_;
  const std::shared_ptr<intranode::RankContext> context_;
  const collective::GroupRef messages_;
  const ByMessages by_messages_;
  base::CallerTrace* const trace_;  ///< null: nothing is noted

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;  ///< an operation is in progress
  bool ends_ = false;
  uint64_t ended_ = 0;       ///< operations
  int prompt_in_a_row_ = 0;  ///< calls whose callers waited at once
  bool was_awaited_ = false;  ///< the caller of the last one has waited before it ended
  bool polls_ = false;  ///< the thread will poll the jobs soon, without a wake-up
  size_t waiting_ = 0;  ///< threads in turn() to wake when nothing is pending
  size_t withdrawing_ = 0;  ///< threads in withdraw() to wake when an operation has ended
  std::deque<Job> jobs_;  ///< for the thread, in order
  std::atomic<size_t> pending_{0};  ///< jobs plus the operation in progress; written under mutex_
  std::thread thread_;  ///< started by the first job
};

}  // namespace mv::api
