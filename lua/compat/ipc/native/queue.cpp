#include "queue.hpp"

#include <map>
#include <memory>
#include <utility>

namespace mv::native {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Queue>> queues;
};

Registry& registry() {
  static auto* registry = new Registry;  // never destroyed: threads may outlive main()
  return *registry;
}

/// A Lua value: one opening of the queue. An opening can be closed separately.
class Opening : public Shared {
 public:
  static constexpr const char* kKind = Queue::kKind;
  explicit Opening(std::shared_ptr<Queue> queue) : queue(std::move(queue)) {}
  const char* kind() const override { return kKind; }
  std::shared_ptr<Queue> queue;
};

Queue* check_open(lua_State* L) {
  const auto* opening = check_shared<Opening>(L, 1);
  if (opening->queue == nullptr) luaL_error(L, "this workqueue is closed");
  return opening->queue.get();
}

int write_all(lua_State* L, bool upvalues) {
  Queue* queue = check_open(L);
  return guarded(L, [&](Failure& failure) {
    std::deque<Message> messages;
    for (int i = 2, last = lua_gettop(L); i <= last; ++i) {
      messages.emplace_back();
      if (!encode(L, i, {.in_process = true, .upvalues = upvalues}, messages.back(), failure)) return 0;
    }
    queue->write(std::move(messages));
    return 0;
  });
}

int write_method(lua_State* L) { return write_all(L, false); }
int writeup_method(lua_State* L) { return write_all(L, true); }

/// read([without waiting])
int read_method(lua_State* L) {
  Queue* queue = check_open(L);
  return guarded(L, [&](Failure& failure) {
    Message message;
    size_t at = 0;
    if (!queue->read(lua_toboolean(L, 2) == 0, message, Interrupts(L), failure)) return 0;
    return decode(L, message, at, {.in_process = true, .functions = true}, 0, failure) ? 1 : 0;
  });
}

int drain_method(lua_State* L) {
  Queue* queue = check_open(L);
  return guarded(L, [&](Failure& failure) {
    queue->drain(Interrupts(L), failure);
    return 0;
  });
}

int close_method(lua_State* L) {
  check_open(L)->close();
  check_shared<Opening>(L, 1)->queue.reset();
  return 0;
}

}  // namespace

std::shared_ptr<Queue> Queue::open(const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  auto& queue = registry().queues[name];
  if (queue == nullptr) queue = std::make_shared<Queue>(name);
  ++queue->users_;
  return queue;
}

void Queue::close() {
  const std::lock_guard lock(registry().mutex);
  if (--users_ == 0) registry().queues.erase(name_);
}

void Queue::write(std::deque<Message> messages) {
  const std::lock_guard lock(mutex_);
  auto& to = is_owner() ? questions_ : answers_;
  for (Message& message : messages) to.push_back(std::move(message));
  changed_.notify_all();
}

bool Queue::read(bool waits, Message& message, const Interrupts& interrupts, Failure& failure) {
  std::unique_lock lock(mutex_);
  auto& from = is_owner() ? answers_ : questions_;
  while (from.empty()) {
    if (!waits) return false;
    if (interrupts.come()) return failure = kInterrupted, false;
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  message = std::move(from.front());
  from.pop_front();
  return true;
}

bool Queue::drain(const Interrupts& interrupts, Failure& failure) {
  if (!is_owner()) return failure = "only the owner of this workqueue can call drain()", false;
  std::unique_lock lock(mutex_);
  const size_t expected = questions_.size() + answers_.size();
  while (answers_.size() < expected) {
    if (interrupts.come()) return failure = kInterrupted, false;
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  return true;
}

int open_queue(lua_State* L) {
  luaL_checkstring(L, 1);
  push_shared(L, std::make_shared<Opening>(Queue::open(text_of(L, 1))));
  return 1;
}

void open_queues(lua_State* L) {
  static constexpr luaL_Reg kMethods[] = {{"write", write_method}, {"writeup", writeup_method}, {"read", read_method},
                                          {"drain", drain_method}, {"close", close_method},     {nullptr, nullptr}};
  open_kind(L, Queue::kKind, kMethods);
  lua_pop(L, 1);
}

}  // namespace mv::native
