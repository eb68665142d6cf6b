#pragma once
// map(): a function in threads, each with a Lua of its own.

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

  /// What a new Lua needs to find what the old one finds.
  struct Surroundings {
    std::string path, cpath;
    bool has_torch = false;
  };

  const char* kind() const override { return kKind; }

  /// Starts a thread. `arguments` holds the function, its arguments and their number, which counts the function, before them.
  void start(Message arguments, const Surroundings& surroundings);
  /// Waits for all and pushes what they returned, in the order in which they were started; then there is nothing left.
  int join(lua_State* L, Failure& failure);
  /// The failure of one that has ended, which is forgotten then.
  void check(Failure& failure);

 private:
  struct Worker {
    Message arguments, results;
    Surroundings surroundings;
    std::string failure;
    bool failed = false, ended = false, is_told = false;
  };

  /// Shared with the threads, which may outlive the value in Lua: nobody has to join.
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
