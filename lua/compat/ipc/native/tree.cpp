#include "tree.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

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

/// The trees that the program still had when the interpreter closed its state. Only the exit status tells whether it has failed.
std::vector<SharedPtr>& kept() {
  static auto* kept = new std::vector<SharedPtr>;
  return *kept;
}

/// All trees that were not collected. os.exit() need not close the interpreter's state, so they may still be in use.
struct OpenTrees {
  std::mutex mutex;
  std::vector<std::weak_ptr<Tree>> trees;

  void add(const std::shared_ptr<Tree>& tree) {
    const std::lock_guard lock(mutex);
    std::erase_if(trees, [](const auto& each) { return each.expired(); });
    trees.push_back(tree);
  }
  std::vector<std::shared_ptr<Tree>> all() {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<Tree>> found;
    for (const auto& each : trees)
      if (auto tree = each.lock()) found.push_back(std::move(tree));
    return found;
  }
};

OpenTrees& open_now() {
  static auto* open = new OpenTrees;  // never destroyed, like leaving()
  return *open;
}

/// Ends all trees before it waits: one that is leaving may be in a cluster with another that is open.
void end_trees(int exit_status, void*) {
  for (const auto& tree : open_now().all()) {
    if (exit_status != 0) tree->abort(exit_status);
    tree->leave();
  }
  std::unique_lock lock(leaving().mutex);
  leaving().changed.wait_for(lock, kLeave, [] { return leaving().count == 0; });
}

/// Ranks that wait for this rank, now or later, learn at once that it has left; the node keeps serving until the others have ended.
void close_and_shut_down(mv_node node, mv_group group) {
  mv_group_close(group);
  mv_shutdown(node);
  const std::lock_guard lock(leaving().mutex);
  --leaving().count;
  leaving().changed.notify_all();
}

/// Whether a function written in Lua is running.
bool runs_lua(lua_State* L) {
  lua_Debug call;
  for (int level = 0; lua_getstack(L, level, &call) != 0; ++level)
    if (lua_getinfo(L, "S", &call) != 0 && *call.what != 'C') return true;
  return false;
}

/// __gc. After an error that nobody has caught, an interpreter collects garbage and closes its state. So a tree outlives a program that no
/// longer runs, until the process ends. In a thread of ipc.map() the tree leaves: the process continues.
int end(lua_State* L) {
  auto* at = static_cast<SharedPtr*>(lua_touserdata(L, 1));
  if (at == nullptr || *at == nullptr) return 0;
  try {
    if (gettid() == getpid() && !runs_lua(L)) kept().push_back(*at);
  } catch (const std::bad_alloc&) {  // then it leaves now
  }
  at->reset();
  return 0;
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

void Tree::abort(int exit_status) {
  if (std::exchange(has_left_, true)) return;
  char reason[64];
  std::snprintf(reason, sizeof reason, "its process ended with exit status %d", exit_status);
  mv_abort(node_, reason);
}

void Tree::leave() {
  if (std::exchange(has_left_, true)) return;
  {
    const std::lock_guard lock(leaving().mutex);
    ++leaving().count;
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(close_and_shut_down, node_, group_).detach();
  } catch (const std::exception&) {
    close_and_shut_down(node_, group_);
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
    static const bool waits_at_exit = on_exit(end_trees, nullptr) == 0;
    (void)waits_at_exit;
    status = mv_group_open(node, nullptr, 0, &group);
    if (status == MV_OK) {
      const auto tree = std::make_shared<Tree>(node, group);
      open_now().add(tree);
      push_shared(L, tree);
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
  luaL_getmetatable(L, Tree::kKind);
  lua_pushcfunction(L, end);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 2);
}

}  // namespace mv::native
