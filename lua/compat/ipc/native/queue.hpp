#pragma once
// workqueue(): values between the thread that made a queue and its workers. Within the process, by name.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "message.hpp"

namespace mv::native {

class Queue : public Shared {
 public:
  static constexpr const char* kKind = "ipc.workqueue";

  /// The queue of this name, created on the first call. The thread that creates it owns it: the owner writes values that the other threads
  /// read, and reads values that they write.
  static std::shared_ptr<Queue> open(const std::string& name);
  explicit Queue(std::string name) : name_(std::move(name)), owner_(std::this_thread::get_id()) {}
  const char* kind() const override { return kKind; }

  void write(std::deque<Message> messages);
  /// False with a failure, or without one if the queue is empty and `waits` is false.
  bool read(bool waits, Message& message, const Interrupts& interrupts, Failure& failure);
  /// Waits in the owner until every written value has an answer.
  bool drain(const Interrupts& interrupts, Failure& failure);
  /// The last user's close() frees the name.
  void close();

 private:
  bool is_owner() const { return std::this_thread::get_id() == owner_; }

  const std::string name_;
  const std::thread::id owner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> questions_, answers_;
  int users_ = 0;  // belongs to the registry
};

/// workqueue(name [, size]); queues grow, so the size is ignored
int open_queue(lua_State* L);

/// Makes the metatable.
void open_queues(lua_State* L);

}  // namespace mv::native
