#include "shared.hpp"

#include <new>
#include <utility>

namespace mv::native {

namespace {

constexpr char kIsShared = 0;  // its address is a key of metatables whose values are SharedPtr

int end(lua_State* L) {
  auto* at = static_cast<SharedPtr*>(lua_touserdata(L, 1));
  if (at != nullptr) at->reset();
  return 0;
}

int same(lua_State* L) {
  const auto *first = static_cast<SharedPtr*>(lua_touserdata(L, 1)), *second = static_cast<SharedPtr*>(lua_touserdata(L, 2));
  lua_pushboolean(L, first != nullptr && second != nullptr && *first == *second);
  return 1;
}

}  // namespace

void push_shared(lua_State* L, SharedPtr shared) {
  const char* kind = shared->kind();
  new (lua_newuserdata(L, sizeof(SharedPtr))) SharedPtr(std::move(shared));
  luaL_getmetatable(L, kind);
  lua_setmetatable(L, -2);
}

SharedPtr shared_at(lua_State* L, int index) {
  index = absolute(L, index);
  if (lua_type(L, index) != LUA_TUSERDATA || lua_getmetatable(L, index) == 0) return nullptr;
  lua_pushlightuserdata(L, const_cast<char*>(&kIsShared));
  lua_rawget(L, -2);
  const bool is_shared = lua_toboolean(L, -1) != 0;
  lua_pop(L, 2);
  return is_shared ? *static_cast<SharedPtr*>(lua_touserdata(L, index)) : nullptr;
}

void open_kind(lua_State* L, const char* kind, const luaL_Reg* methods) {
  luaL_newmetatable(L, kind);
  lua_pushlightuserdata(L, const_cast<char*>(&kIsShared));
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pushcfunction(L, end);
  lua_setfield(L, -2, "__gc");
  lua_pushcfunction(L, same);
  lua_setfield(L, -2, "__eq");
  lua_pushliteral(L, "");
  lua_setfield(L, -2, "__metatable");
  lua_newtable(L);
  set_functions(L, methods);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__index");
  lua_remove(L, -2);
}

}  // namespace mv::native
