#pragma once
// Lua's values as bytes, for messages between threads and processes.
//
// Supports nil, booleans, numbers, strings, nested tables, and the userdata (tensors) that pack() and unpack() of polyverso/ipc_values.lua
// convert. Functions are sent as code. By default only threads of the same process accept them.

#include <string>
#include <string_view>
#include <vector>

#include "lua.hpp"
#include "shared.hpp"

namespace mv::native {

struct Message {
  std::string bytes;
  std::vector<SharedPtr> shared;  ///< within a process
};

struct Manner {
  bool in_process = false;  ///< between threads: shared objects are sent by reference
  bool upvalues = false;    ///< functions are sent with copies of their upvalues, else refused if they have any
  bool functions = false;   ///< received functions are loaded: their sender may run any code
};

/// Appends the value at `index`.
bool encode(lua_State* L, int index, const Manner& manner, Message& message, Failure& failure);

/// Pushes the value that begins at `at`, and moves `at` past it.
/// @param into the place of a tensor's elements: an index of the stack, or 0 for a new tensor
bool decode(lua_State* L, const Message& message, size_t& at, const Manner& manner, int into, Failure& failure);

/// encode(value): its bytes, as in a message to another process
int encode_bytes(lua_State* L);
/// decode(bytes): the value; functions are refused
int decode_bytes(lua_State* L);

/// hooks(pack, unpack), for Lua
int set_hooks(lua_State* L);

}  // namespace mv::native
