#pragma once
// map(): runs a function in threads, each with its own Lua state.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "message.hpp"

namespace mv::native {

class Workers : public Shared {
 public:
  static constexpr const char* kKind = "ipc.map";

  /// The settings with which a new Lua state finds the same modules as the old one.
  struct Surroundings {
    std::string path, cpath;
    bool has_torch = false;
  };

  const char* kind() const override { return kKind; }

  /// Starts a thread. `arguments` holds a count, the function, and its arguments; the count includes the function.
  void start(Message arguments, const Surroundings& surroundings);
  /// Waits for all threads and pushes their results, in the order of their start; afterwards the object is empty.
  int join(lua_State* L, Failure& failure);
  /// The failure of a thread that has ended; the thread is then forgotten.
  void check(Failure& failure);

 private:
  struct Worker {
    Message arguments, results;
    Surroundings surroundings;
    std::string failure;
    bool failed = false, ended = false, is_told = false;
  };

  /// Shared with the threads, which may outlive the Lua value, because nobody has to join them.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<Worker>> workers;
  };

  static void run(const std::shared_ptr<State>& state, const std::shared_ptr<Worker>& worker);
  static void work(lua_State* L, Worker& worker);

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// map(count, function, ...)
int map(lua_State* L);

/// Makes the metatable.
void open_workers(lua_State* L);

}  // namespace mv::native
