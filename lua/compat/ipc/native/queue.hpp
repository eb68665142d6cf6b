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

  /// The one of this name, made if there is none. The thread that makes it owns it: what the owner writes the others read, and the other
  /// way round.
  static std::shared_ptr<Queue> open(const std::string& name);
  explicit Queue(std::string name) : name_(std::move(name)), owner_(std::this_thread::get_id()) {}
  const char* kind() const override { return kKind; }

  void write(std::deque<Message> messages);
  /// False with a failure, or without one: nothing is there, and it was not to be waited for.
  bool read(bool waits, Message& message, const Interrupts& interrupts, Failure& failure);
  /// The owner waits until there is an answer for everything that was written.
  bool drain(const Interrupts& interrupts, Failure& failure);
  /// The last of those who opened it makes its name free.
  void close();

 private:
  bool is_owner() const { return std::this_thread::get_id() == owner_; }

  const std::string name_;
  const std::thread::id owner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> questions_, answers_;
  int users_ = 0;  // the registry's
};

/// workqueue(name [, size]); queues grow, so the size says nothing
int open_queue(lua_State* L);

/// Makes the metatable.
void open_queues(lua_State* L);

}  // namespace mv::native
