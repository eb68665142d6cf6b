#pragma once
// Lua's C API, 5.1 (which LuaJIT shares) to 5.4, as this folder uses it.
//
// A Lua error may leave a C function by longjmp(), without calling destructors. So functions check their arguments before they make objects
// that own anything, and report later errors as text, which guarded() raises after all objects are destroyed.

extern "C" {
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
}

#include <cstdint>
#include <exception>
#include <string>

namespace mv::native {

/// An error message; empty: no error.
using Failure = std::string;

/// The failure of a wait that a signal has ended.
inline constexpr const char* kInterrupted = "interrupted!";

/// Pushes the error with which the interpreter's signal handler ends the program. The handler has set a hook for the next instruction. This
/// function runs an empty function, so that the hook raises its error there, and not in an error handler, where it would become an error in
/// error handling.
inline void push_interruption(lua_State* L) {
  if (luaL_loadbuffer(L, "", 0, "=ipc") != 0 || lua_pcall(L, 0, 0, 0) != 0) return;
  lua_pushstring(L, kInterrupted);
}

/// Runs `body(failure)`, which returns the number of results that it has pushed; raises its failure, preceded by the caller's line.
template <typename Body>
int guarded(lua_State* L, Body body) {
  int results = 0;
  bool failed = false;
  {
    Failure failure;
    try {
      results = body(failure);
    } catch (const std::exception& thrown) {
      failure = thrown.what();
    }
    if (failure == kInterrupted) {
      failed = true;
      push_interruption(L);
    } else if (!failure.empty()) {
      failed = true;
      luaL_where(L, 1);
      lua_pushlstring(L, failure.data(), failure.size());
      lua_concat(L, 2);
    }
  }
  return failed ? lua_error(L) : results;
}

inline size_t raw_length(lua_State* L, int index) {
#if LUA_VERSION_NUM >= 502
  return lua_rawlen(L, index);
#else
  return lua_objlen(L, index);
#endif
}

inline int absolute(lua_State* L, int index) { return index > 0 || index <= LUA_REGISTRYINDEX ? index : lua_gettop(L) + index + 1; }

inline void push_globals(lua_State* L) {
#if LUA_VERSION_NUM >= 502
  lua_pushglobaltable(L);
#else
  lua_pushvalue(L, LUA_GLOBALSINDEX);
#endif
}

inline void push_integer(lua_State* L, int64_t value) {
#if LUA_VERSION_NUM >= 503
  lua_pushinteger(L, static_cast<lua_Integer>(value));
#else
  lua_pushnumber(L, static_cast<lua_Number>(value));
#endif
}

/// Sets functions into the table on top of the stack.
inline void set_functions(lua_State* L, const luaL_Reg* functions) {
  for (; functions->name != nullptr; ++functions) {
    lua_pushcfunction(L, functions->func);
    lua_setfield(L, -2, functions->name);
  }
}

/// A text argument.
inline std::string text_of(lua_State* L, int index) {
  size_t length = 0;
  const char* text = lua_tolstring(L, index, &length);
  return text != nullptr ? std::string(text, length) : std::string();
}

/// Tells whether the interpreter's own signal handler has run since this object was made. That handler sets a hook that ends the program at
/// the next instruction, so waits in C must return to Lua.
class Interrupts {
 public:
  explicit Interrupts(lua_State* L) : state_(L), before_(lua_gethook(L)) {}
  bool come() const { return lua_gethook(state_) != before_; }

 private:
  lua_State* state_;
  lua_Hook before_;
};

}  // namespace mv::native
