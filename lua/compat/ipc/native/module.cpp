// require("polyverso.ipc"): the functions that torch-ipc's modules need and Lua lacks. lua/compat/ipc/libipc.lua is the user's interface to it.

#include <sodium.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "connection.hpp"
#include "lent.hpp"
#include "meeting.hpp"
#include "message.hpp"
#include "queue.hpp"
#include "server.hpp"
#include "tree.hpp"
#include "workers.hpp"

namespace mv::native {

namespace {

int process(lua_State* L) {
  push_integer(L, getpid());
  return 1;
}

int parent(lua_State* L) {
  push_integer(L, getppid());
  return 1;
}

/// sleep(seconds)
int pause(lua_State* L) {
  const double seconds = luaL_checknumber(L, 1);
  return guarded(L, [&](Failure& failure) {
    const Interrupts interrupts(L);
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (auto left = until - Clock::now(); left > Clock::duration::zero(); left = until - Clock::now()) {
      if (interrupts.come()) return failure = kInterrupted, 0;
      std::this_thread::sleep_for(std::min<Clock::duration>(left, std::chrono::milliseconds(50)));
    }
    return 0;
  });
}

}  // namespace

}  // namespace mv::native

extern "C" __attribute__((visibility("default"))) int luaopen_polyverso_ipc(lua_State* L) {
  using namespace mv::native;
  static constexpr luaL_Reg kFunctions[] = {{"server", open_server},  {"client", open_client}, {"ready", wait_ready},
                                            {"map", map},             {"workqueue", open_queue}, {"hooks", set_hooks},
                                            {"encode", encode_bytes}, {"decode", decode_bytes},
                                            {"acceptFunctions", accept_functions},             {"lent", lend},
                                            {"getpid", process},      {"getppid", parent},     {"sleep", pause},
                                            {"reserve", reserve},     {"hostname", host_name},
                                            {"claim", claim},         {"claimed", read_claimed}, {"make_folder", make_folder},
                                            {"join", join_tree},      {nullptr, nullptr}};
  if (sodium_init() < 0) return luaL_error(L, "libsodium can't be used");
  lua_newtable(L);
  set_functions(L, kFunctions);
  open_workers(L);
  open_queues(L);
  open_lent(L);
  open_meetings(L);
  open_trees(L);
  open_connections(L);
  lua_setfield(L, -2, "client_methods");
  open_servers(L);
  lua_setfield(L, -2, "server_methods");
  return 1;
}
