#include "tree.hpp"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

namespace mv::native {

namespace {

/// Returns a status other than MV_OK to Lua: nil, code, text. A signal's status becomes a failure.
int push_status(lua_State* L, mv_status status, Failure& failure) {
  if (status == MV_EINTR) return failure = kInterrupted, 0;
  lua_pushnil(L);
  push_integer(L, status);
  char text[4096];  // lua_pushstring() may run finalizers before it copies, and they make calls of their own
  std::snprintf(text, sizeof text, "%s", mv_last_error());
  lua_pushstring(L, text);
  return 3;
}

// ------------------------------------------------------------------ leaving

/// The maximum time for which the process's end waits until no peer needs it any more.
constexpr std::chrono::minutes kLeave{10};

struct Leaving {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

Leaving& leaving() {
  static auto* leaving = new Leaving;  // never destroyed: threads may outlive main()
  return *leaving;
}

void wait_for_leaving() {
  std::unique_lock lock(leaving().mutex);
  leaving().changed.wait_for(lock, kLeave, [] { return leaving().count == 0; });
}

/// Ranks that wait for this rank, now or later, learn at once that it has left; the node keeps serving until the others have ended.
void leave(mv_node node, mv_group group) {
  mv_group_close(group);
  mv_shutdown(node);
  const std::lock_guard lock(leaving().mutex);
  --leaving().count;
  leaving().changed.notify_all();
}

// ------------------------------------------------------------------ a tree's methods

/// group(): its handle, for the functions of polyverso.capi
int group_method(lua_State* L) {
  push_integer(L, check_shared<Tree>(L, 1)->group());
  return 1;
}

int info_method(lua_State* L) {
  const auto* tree = check_shared<Tree>(L, 1);
  return guarded(L, [&](Failure& failure) {
    mv_group_info info = MV_GROUP_INFO_INIT;
    const mv_status status = mv_group_describe(tree->group(), &info);
    if (status != MV_OK) return push_status(L, status, failure);
    lua_newtable(L);
    const std::pair<const char*, int64_t> numbers[] = {{"rank", info.rank},
                                                       {"size", info.ranks},
                                                       {"hosts", info.hosts},
                                                       {"sent", static_cast<int64_t>(info.bytes_sent)},
                                                       {"received", static_cast<int64_t>(info.bytes_received)},
                                                       {"operations", static_cast<int64_t>(info.operations)}};
    for (const auto& [name, value] : numbers) {
      push_integer(L, value);
      lua_setfield(L, -2, name);
    }
    lua_pushstring(L, info.transport);
    lua_setfield(L, -2, "transport");
    return 1;
  });
}

}  // namespace

Tree::~Tree() {
  {
    const std::lock_guard lock(leaving().mutex);
    ++leaving().count;
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(leave, node_, group_).detach();
  } catch (const std::exception&) {
    leave(node_, group_);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

int join_tree(lua_State* L) {
  const bool is_own = lua_gettop(L) == 0;
  const auto index = static_cast<int64_t>(luaL_optnumber(L, 1, 1)), nodes = static_cast<int64_t>(luaL_optnumber(L, 2, 1));
  const char *master = luaL_optstring(L, 3, nullptr), *bind = luaL_optstring(L, 4, nullptr);
  return guarded(L, [&](Failure& failure) {
    mv_init_options options = MV_INIT_OPTIONS_INIT;
    options.nodes = nodes;
    options.rank = index - 1;
    options.master = master;
    options.bind = bind;
    mv_node node = 0;
    mv_group group = 0;
    mv_status status = is_own ? mv_init(nullptr) : mv_node_open(&options, &node);
    if (status != MV_OK) return push_status(L, status, failure);
    static const bool waits_at_exit = std::atexit(wait_for_leaving) == 0;
    (void)waits_at_exit;
    status = mv_group_open(node, nullptr, 0, &group);
    if (status == MV_OK) {
      push_shared(L, std::make_shared<Tree>(node, group));
      return 1;
    }
    const int told = push_status(L, status, failure);
    mv_shutdown(node);
    return told;
  });
}

void open_trees(lua_State* L) {
  static constexpr luaL_Reg kMethods[] = {{"group", group_method}, {"info", info_method}, {nullptr, nullptr}};
  open_kind(L, Tree::kKind, kMethods);
  lua_pop(L, 1);
}

}  // namespace mv::native
