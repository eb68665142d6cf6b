/* Error values of Lua: tables {code, name, family, text, where} with a tostring(). Continues lua_values.h. */
#ifndef POLYVERSO_SWIG_LUA_ERRORS_H
#define POLYVERSO_SWIG_LUA_ERRORS_H

/* tostring(error): error.where .. error.name .. error.text */
static int pv_error_text(lua_State *L) {
  lua_getfield(L, 1, "where");
  lua_getfield(L, 1, "name");
  lua_pushliteral(L, ": ");
  lua_getfield(L, 1, "text");
  lua_concat(L, 4);
  return 1;
}

/* Whether a chunk belongs to this binding, so that its lines do not help the user. The names are listed because a
 * folder's name is not enough: the user's scripts may be in a folder of the same name. */
static int pv_is_own(const char *source) {
  static const char *const own[] = {
      "/polyverso/arrays.lua", "/polyverso/data.lua", "/polyverso/distlearn.lua", "/polyverso/foreign.lua",
      "/polyverso/gossip.lua", "/polyverso/group.lua", "/polyverso/init.lua", "/polyverso/ipc_values.lua",
      "/polyverso/json.lua", "/polyverso/kvstore.lua", "/polyverso/kvstore_server.lua", "/polyverso/lr_scheduler.lua",
      "/polyverso/memory.lua", "/polyverso/names.lua", "/polyverso/node.lua", "/polyverso/objects.lua",
      "/polyverso/optimizer.lua", "/polyverso/request.lua", "/polyverso/table.lua", "/polyverso/tensor.lua",
      "/polyverso/values.lua", "/multiverso/init.lua", "/multiverso/tensors.lua", "/libipc.lua",
      "/ipc/DiscoveredTree.lua", "/ipc/LocalhostTree.lua", "/ipc/NullTree.lua", "/ipc/SlurmTree.lua",
      "/ipc/StaticTree.lua", "/ipc/Tree.lua", "/ipc/reduction.lua", "/ipc/utils.lua", "/ipc/values.lua",
      "/distlearn/AllReduceEA.lua", "/distlearn/AllReduceSGD.lua", "/distlearn/upon.lua", "/torch/arithmetic.lua",
      "/torch/class.lua", "/torch/cmdline.lua", "/torch/creation.lua", "/torch/dispatch.lua", "/torch/equality.lua",
      "/torch/file.lua", "/torch/indexing.lua", "/torch/init.lua", "/torch/linear.lua", "/torch/printing.lua",
      "/torch/reduction.lua", "/torch/storage.lua", "/torch/tensor.lua", "/torch/tester.lua", "/torch/timer.lua",
      "/torch/types.lua", "/torch/views.lua", "/nn/init.lua", "/nn/module.lua", "/nn/layers.lua", "/nn/criterions.lua"};
  size_t length = strlen(source);
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
    if (length >= strlen(own[i]) && strcmp(source + length - strlen(own[i]), own[i]) == 0) return 1;
  return 0;
}

/* Pushes "file:line: " of the innermost line of the user's code. */
static void pv_push_where(lua_State *L) {
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline > 0 && !pv_is_own(frame.source)) {
      lua_pushfstring(L, "%s:%d: ", frame.short_src, frame.currentline);
      return;
    }
  }
  lua_pushliteral(L, "");
}

/* error .. text, text .. error */
static int pv_error_concat(lua_State *L) {
  for (int i = 1; i <= 2; ++i) {
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
  }
  lua_concat(L, 2);
  return 1;
}

/* Pushes the metatable of the error values. */
static void pv_push_error_class(lua_State *L) {
  pv_registry(L, &pv_error_key);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, pv_error_text);
  lua_setfield(L, -2, "__tostring");
  lua_pushcfunction(L, pv_error_concat);
  lua_setfield(L, -2, "__concat");
  lua_pushlightuserdata(L, (void *)&pv_error_key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

/* ------------------------------------------------------------------ plain Lua 5.1 */

/* Its interpreter prints an error that nobody has caught only if it is a string; "(error object is not a string)" tells
 * nothing. So an error that no pcall() waits for is raised as its text. The other interpreters call tostring(). */
#if LUA_VERSION_NUM < 502

/* Whether one of a thread's running functions catches errors. On top of the stack of L is the set of those that do. */
static int pv_has_catcher(lua_State *L, lua_State *thread) {
  lua_Debug frame;
  if (!lua_checkstack(thread, 2)) return 1;
  for (int level = 0; lua_getstack(thread, level, &frame); ++level) {
    lua_getinfo(thread, "f", &frame);
    if (thread != L) lua_xmove(thread, L, 1);
    lua_rawget(L, -2);
    const int catches = lua_toboolean(L, -1);
    lua_pop(L, 1);
    if (catches) return 1;
  }
  return 0;
}

/* Whether something in Lua will catch an error that is raised now. */
static int pv_is_caught(lua_State *L) {
  pv_registry(L, &pv_catchers_key);
  if (lua_isnil(L, -1)) { /* LuaJIT */
    lua_pop(L, 1);
    return 1;
  }
  lua_getfield(L, -1, "main");
  lua_State *main = lua_tothread(L, -1);
  lua_pop(L, 1);
  const int caught = pv_has_catcher(L, L) || (main && main != L && pv_has_catcher(L, main));
  lua_pop(L, 1);
  return caught;
}

/* Called when the module is loaded: the set of functions that catch errors, and the main thread in its field `main`. */
static void pv_find_catchers(lua_State *L) {
  static const char *const names[] = {"return pcall", "return xpcall", "return coroutine.resume"};
  lua_getglobal(L, "jit");
  const int is_plain = lua_isnil(L, -1);
  lua_pop(L, 1);
  if (!is_plain) return;
  pv_registry_table(L, &pv_catchers_key);
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (luaL_loadstring(L, names[i]) != 0) lua_error(L);
    lua_call(L, 0, 1);
    if (!lua_isnil(L, -1)) {
      lua_pushboolean(L, 1);
      lua_rawset(L, -3);
    } else {
      lua_pop(L, 1);
    }
  }
  if (lua_pushthread(L))
    lua_setfield(L, -2, "main");
  else
    lua_pop(L, 1);
  lua_pop(L, 1);
}

#else
static int pv_is_caught(lua_State *L) { return L != NULL && pv_catchers_key == 0; }
static void pv_find_catchers(lua_State *L) { (void)L; }
#endif

/* Replaces the error value on top of the stack by its text if the interpreter could not print it. */
static void pv_make_printable(lua_State *L) {
  if (pv_is_caught(L)) return;
  lua_pushcfunction(L, pv_error_text);
  lua_insert(L, -2);
  lua_call(L, 1, 1);
}

/* ------------------------------------------------------------------ raising */

/* Pushes a text in which C functions have the names of Lua's methods: polyverso/names.lua replaces them. */
static void pv_push_named(lua_State *L, const char *text) {
  if (!strstr(text, "mv_") && !strstr(text, "kv_")) {
    lua_pushstring(L, text);
    return;
  }
  lua_getglobal(L, "require");
  lua_pushliteral(L, "polyverso.names");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "in_text");
  lua_remove(L, -2);
  lua_pushstring(L, text);
  lua_call(L, 1, 1);
}

/* Pushes an error value, {code, name, family, text, where} with a tostring(), and keeps it for last_error(). */
static void pv_raise_text(lua_State *L, mv_status status, const char *text) {
  lua_createtable(L, 0, 5);
  pv_set_integer(L, "code", status);
  lua_pushstring(L, mv_status_name(status));
  lua_setfield(L, -2, "name");
  lua_pushstring(L, mv_status_family(status));
  lua_setfield(L, -2, "family");
  pv_push_named(L, *text ? text : mv_status_message(status));
  lua_setfield(L, -2, "text");
  pv_push_where(L);
  lua_setfield(L, -2, "where");
  pv_push_error_class(L);
  lua_setmetatable(L, -2);
  lua_pushlightuserdata(L, (void *)&pv_raised_key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  pv_make_printable(L);
}

/* last_error(): the error value that was raised last, or nil. */
static int pv_last_raised(lua_State *L) {
  pv_registry(L, &pv_raised_key);
  return 1;
}

/* Whether the value at an index is an error value. */
static int pv_is_error(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TTABLE || !lua_getmetatable(L, index)) return 0;
  pv_push_error_class(L);
  const int is_own = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return is_own;
}

/* raise_again(failure): raises what pcall() has returned. */
static int pv_raise_again(lua_State *L) {
  lua_settop(L, 1);
  if (pv_is_error(L, 1)) pv_make_printable(L);
  return lua_error(L);
}

#if LUA_VERSION_NUM < 502

/* error() of plain Lua 5.1. An error value that no pcall() waits for is raised as its text. */
static int pv_error_51(lua_State *L) {
  const int level = luaL_optint(L, 2, 1);
  lua_settop(L, 1);
  if (lua_isstring(L, 1) && level > 0) {
    luaL_where(L, level);
    lua_insert(L, 1);
    lua_concat(L, 2);
  }
  return pv_raise_again(L);
}

/* assert() of plain Lua 5.1. It raises an error value like its text, for assert(pcall(...)). */
static int pv_assert_51(lua_State *L) {
  luaL_checkany(L, 1);
  if (lua_toboolean(L, 1)) return lua_gettop(L);
  if (!pv_is_error(L, 2)) return luaL_error(L, "%s", luaL_optstring(L, 2, "assertion failed!"));
  lua_remove(L, 1);
  return pv_raise_again(L);
}

/* Puts them in the place of the interpreter's own. */
static void pv_extend_errors(lua_State *L) {
  static const luaL_Reg functions[] = {{"error", pv_error_51}, {"assert", pv_assert_51}};
  pv_registry(L, &pv_catchers_key);
  const int is_plain = !lua_isnil(L, -1); /* not LuaJIT */
  lua_pop(L, 1);
  for (size_t i = 0; is_plain && i < sizeof functions / sizeof *functions; ++i) {
    lua_getglobal(L, functions[i].name);
    const int is_own = lua_iscfunction(L, -1); /* otherwise the program or another library has replaced it */
    lua_pop(L, 1);
    if (is_own) lua_register(L, functions[i].name, functions[i].func);
  }
}

#else
static void pv_extend_errors(lua_State *L) { (void)L; }
#endif

/* Ctrl-C: the interpreter's handler has set a hook that ends the program at its next instruction. Run an empty
 * function, so that the hook raises its error there, and not in an error handler, where it would become an error in
 * error handling. 1 with the error that the hook raised. */
static int pv_run_hook(lua_State *L) {
  if (!lua_gethook(L)) return 0;
  if (luaL_loadbuffer(L, "", 0, "=polyverso") != 0 || lua_pcall(L, 0, 0, 0) != 0) return 1;
  return 0;
}

#define PV_ERROR_SIZE 4096

/* Copies mv_last_error() into memory outside of Lua: even lua_pushstring() may collect garbage before it copies, and
 * finalizers make calls of their own, which replace the library's text. */
static const char *pv_last_error(char text[PV_ERROR_SIZE]) {
  snprintf(text, PV_ERROR_SIZE, "%s", mv_last_error());
  return text;
}

static void pv_raise(lua_State *L, mv_status status) {
  if (status == MV_EINTR && pv_run_hook(L)) return;
  char text[PV_ERROR_SIZE];
  pv_raise_text(L, status, pv_last_error(text));
}

static int pv_refuse(lua_State *L, mv_status status, const char *function, const char *format, ...) {
  char text[PV_MESSAGE_SIZE];
  int used = snprintf(text, sizeof text, "%s: ", function);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
  va_end(arguments);
  pv_raise_text(L, status, text);
  return 0;
}

static int pv_raise_lua(lua_State *L) {
  pv_raise_text(L, (mv_status)luaL_checknumber(L, 1), luaL_optstring(L, 2, ""));
  return lua_error(L);
}

/* A signal interrupted a blocking call, which continues under a handle. Its buffers are valid only during this call,
 * so it is withdrawn. */
static void pv_withdraw(lua_State *L, const mv_call_options *options) {
  pv_raise(L, MV_EINTR);
  if (*options->request != 0) mv_request_cancel(*options->request);
}

#endif
