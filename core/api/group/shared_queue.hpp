#pragma once
// One rank's operations on a group over shared memory, one at a time, in the order in which they were asked for: on the caller's thread
// where it waits and the group is free, else on a thread of the queue's own.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "api/call/call.hpp"
#include "engine/collective/groups.hpp"
#include "intranode/rank_context.hpp"
#include "transport/loop/loop.hpp"

namespace mv::api {

/// Shared by the group, its thread and the withdrawals of its calls, which may come after the group was closed. Any thread.
class SharedQueue : public std::enable_shared_from_this<SharedQueue> {
 public:
  /// The loop outlives end(). `messages` is the group of messages below, which hears when an operation has broken this one.
  SharedQueue(transport::Loop& loop, std::shared_ptr<intranode::RankContext> context, collective::GroupRef messages)
      : loop_(loop), context_(std::move(context)), messages_(std::move(messages)) {}
  ~SharedQueue();

  /// The right to use the context, given back at the end.
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
  /// At once or, where earlier operations are not over, not.
  Turn try_turn();
  /// Waits for it. MV_EINTR, MV_ETIMEOUT, MV_ESTATE: nothing has begun.
  base::Result<Turn> turn(base::Nanos until);

  struct Job {
    collective::Operation operation;
    std::shared_ptr<Call> call;
    bool begun;  ///< by a caller that a signal has called away; it goes first
    std::shared_ptr<base::Work> work;  ///< the queue's own
  };
  /// Leaves it to the thread. Throws std::bad_alloc or std::system_error, and then nothing has changed.
  void push(Job job);

  /// With the turn. MV_EINTR after a signal: finish() goes on. Never throws: without memory the group is given up.
  base::Status carry_out(const collective::Operation& operation, base::Nanos deadline) noexcept;
  /// What an operation came to. One that has broken the group has done so for the group of messages, too.
  base::Status settle(base::Status status);
  /// Ends what is under way and whatever may follow; the other ranks hear of it at once.
  void give_up(const base::Status& why) noexcept;
  /// Ends all, and the thread. After the context has left or given up, so that it takes no time. Not on the thread.
  void end();

 private:
  Turn try_turn(std::unique_lock<std::mutex>& lock);
  void end_turn();
  void serve() noexcept;
  void count(std::unique_lock<std::mutex>& lock);
  void withdraw(const Call& call, mv_status code);

  transport::Loop& loop_;
  const std::shared_ptr<intranode::RankContext> context_;
  const collective::GroupRef messages_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;  ///< an operation is under way
  bool ends_ = false;
  size_t waiting_ = 0;  ///< threads in turn() that have to be woken when nothing is pending
  std::deque<Job> jobs_;  ///< for the thread, in their order
  std::atomic<size_t> pending_{0};  ///< jobs and the operation under way; written under mutex_
  std::thread thread_;  ///< begun by the first job
};

}  // namespace mv::api
