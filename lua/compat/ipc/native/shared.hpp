#pragma once
// Objects that threads of a process share, and their values in Lua.

#include <memory>

#include "lua.hpp"

namespace mv::native {

/// An object that a message within the process carries by reference, where a message to another process would need a copy.
class Shared {
 public:
  virtual ~Shared() = default;
  /// The name of its metatable in Lua's registry.
  virtual const char* kind() const = 0;
};

using SharedPtr = std::shared_ptr<Shared>;

/// Pushes a value for it. open_kind() must have made its metatable.
void push_shared(lua_State* L, SharedPtr shared);

/// The one at `index`, or null.
SharedPtr shared_at(lua_State* L, int index);

/// The object at `index` if it is of this class. Anything else raises a Lua error, so no C++ object may be alive.
template <typename Class>
Class* check_shared(lua_State* L, int index) {
  auto* at = static_cast<SharedPtr*>(luaL_checkudata(L, index, Class::kKind));
  return static_cast<Class*>(at->get());
}

/// Makes the metatable of a kind, with these methods, and pushes the table of methods, to which Lua may add.
void open_kind(lua_State* L, const char* kind, const luaL_Reg* methods);

}  // namespace mv::native
