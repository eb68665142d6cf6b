#include "workers.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace mv::native {

namespace {

constexpr Manner kBetweenThreads{.in_process = true, .upvalues = false, .functions = true};
constexpr int kMost = 10'000;

/// SWIG's module and the interpreter's table of loaded libraries must be initialized by one thread at a time.
std::mutex& loading() {
  static auto* mutex = new std::mutex;  // never destroyed: threads may outlive main()
  return *mutex;
}

/// Appends the value at index `value`, as text, to the text on top of the stack.
void append(lua_State* L, int value) {
  lua_getglobal(L, "tostring");
  lua_pushvalue(L, value);
  lua_call(L, 1, 1);
  lua_concat(L, 2);
}

void append(lua_State* L, const char* text) {
  lua_pushstring(L, text);
  lua_concat(L, 2);
}

/// {code = 5, text = boom}, for the table at index 1
int describe_table(lua_State* L) {
  lua_settop(L, 1);
  lua_pushliteral(L, "{");
  bool is_first = true;
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    lua_pushvalue(L, 2);
    if (!is_first) append(L, ", ");
    is_first = false;
    append(L, 3);
    append(L, " = ");
    append(L, 4);
    lua_replace(L, 2);
  }
  append(L, "}");
  return 1;
}

int traceless(lua_State* L) {  // only the message, as text
  if (lua_isstring(L, 1)) return 1;
  if (lua_istable(L, 1) && luaL_getmetafield(L, 1, "__tostring") == 0) return describe_table(L);
  lua_settop(L, 1);
  lua_getglobal(L, "tostring");
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

void set_path(lua_State* L, const char* field, const std::string& value) {
  lua_getglobal(L, "package");
  lua_pushlstring(L, value.data(), value.size());
  lua_setfield(L, -2, field);
  lua_pop(L, 1);
}

std::string path(lua_State* L, const char* field) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, field);
  std::string value = text_of(L, -1);
  lua_pop(L, 2);
  return value;
}

bool require(lua_State* L, const char* module, Failure& failure) {
  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  if (lua_pcall(L, 1, 0, 0) == 0) return true;
  failure = text_of(L, -1);
  lua_pop(L, 1);
  return false;
}

Workers::Surroundings surroundings_of(lua_State* L) {
  Workers::Surroundings found{path(L, "path"), path(L, "cpath")};
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "loaded");
  lua_getfield(L, -1, "torch");
  found.has_torch = lua_toboolean(L, -1) != 0;
  lua_pop(L, 3);
  return found;
}

int join_method(lua_State* L) {
  auto* workers = check_shared<Workers>(L, 1);
  return guarded(L, [&](Failure& failure) { return workers->join(L, failure); });
}

int check_method(lua_State* L) {
  auto* workers = check_shared<Workers>(L, 1);
  return guarded(L, [&](Failure& failure) {
    workers->check(failure);
    return 0;
  });
}

}  // namespace

void Workers::start(Message arguments, const Surroundings& surroundings) {
  auto worker = std::make_shared<Worker>();
  worker->arguments = std::move(arguments);
  worker->surroundings = surroundings;
  {
    const std::lock_guard lock(state_->mutex);
    state_->workers.push_back(worker);
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the interpreter
  try {
    std::thread([state = state_, worker] { run(state, worker); }).detach();
  } catch (...) {
    const std::lock_guard lock(state_->mutex);
    state_->workers.pop_back();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Workers::run(const std::shared_ptr<State>& state, const std::shared_ptr<Worker>& worker) {
  if (lua_State* L = luaL_newstate()) {
    work(L, *worker);
    lua_close(L);
  } else {
    worker->failed = true;
    worker->failure = "out of memory for another Lua state";
  }
  const std::lock_guard lock(state->mutex);
  worker->arguments = {};
  worker->ended = true;
  state->changed.notify_all();
}

void Workers::work(lua_State* L, Worker& worker) {
  const auto ready = [&] {
    const std::lock_guard lock(loading());
    luaL_openlibs(L);
    set_path(L, "path", worker.surroundings.path);
    set_path(L, "cpath", worker.surroundings.cpath);
    return require(L, "libipc", worker.failure) && (!worker.surroundings.has_torch || require(L, "torch", worker.failure));
  };
  worker.failed = true;
  if (!ready()) return;
  lua_settop(L, 0);
  lua_pushcfunction(L, traceless);
  size_t at = 0;
  int values = 0;
  for (; at < worker.arguments.bytes.size(); ++values)
    if (!decode(L, worker.arguments, at, kBetweenThreads, 0, worker.failure)) return;
  if (lua_pcall(L, values - 1, LUA_MULTRET, 1) != 0) {
    worker.failure = text_of(L, -1);
    if (worker.failure.empty()) worker.failure = "an error without a message";
    return;
  }
  for (int i = 2, last = lua_gettop(L); i <= last; ++i) {
    if (encode(L, i, kBetweenThreads, worker.results, worker.failure)) continue;
    worker.failure = "return value: " + worker.failure;
    return;
  }
  worker.failed = false;
}

int Workers::join(lua_State* L, Failure& failure) {
  std::vector<std::shared_ptr<Worker>> workers;
  {
    const Interrupts interrupts(L);
    std::unique_lock lock(state_->mutex);
    const auto all_ended = [&] {
      for (const auto& worker : state_->workers)
        if (!worker->ended) return false;
      return true;
    };
    while (!all_ended()) {
      if (interrupts.come()) return failure = kInterrupted, 0;
      state_->changed.wait_for(lock, std::chrono::milliseconds(50));
    }
    workers.swap(state_->workers);
  }
  int pushed = 0;
  for (const auto& worker : workers) {
    if (worker->failed && !worker->is_told) return failure = worker->failure, 0;
    for (size_t at = 0; !worker->failed && at < worker->results.bytes.size(); ++pushed) {
      if (lua_checkstack(L, 2) == 0) return failure = "the threads returned more values than one Lua function can return", 0;
      if (!decode(L, worker->results, at, kBetweenThreads, 0, failure)) return 0;
    }
  }
  return pushed;
}

void Workers::check(Failure& failure) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& worker : state_->workers) {
    if (!worker->ended || !worker->failed || worker->is_told) continue;
    worker->is_told = true;
    failure = worker->failure;
    return;
  }
}

int map(lua_State* L) {
  const auto count = static_cast<int>(luaL_checknumber(L, 1));
  luaL_checktype(L, 2, LUA_TFUNCTION);
  luaL_argcheck(L, count >= 0 && count <= kMost, 1, "0 .. 10000 threads");
  return guarded(L, [&](Failure& failure) {
    Message common;
    for (int i = 2, last = lua_gettop(L); i <= last; ++i)
      if (!encode(L, i, kBetweenThreads, common, failure)) return 0;
    const Workers::Surroundings surroundings = surroundings_of(L);
    const auto workers = std::make_shared<Workers>();
    for (int id = 1; id <= count; ++id) {
      Message arguments = common;
      lua_pushinteger(L, id);
      encode(L, -1, kBetweenThreads, arguments, failure);
      lua_pop(L, 1);
      workers->start(std::move(arguments), surroundings);
    }
    push_shared(L, workers);
    return 1;
  });
}

void open_workers(lua_State* L) {
  static constexpr luaL_Reg kMethods[] = {{"join", join_method}, {"checkErrors", check_method}, {nullptr, nullptr}};
  open_kind(L, Workers::kKind, kMethods);
  lua_pop(L, 1);
}

}  // namespace mv::native
