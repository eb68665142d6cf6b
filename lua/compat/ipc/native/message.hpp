#pragma once
// Lua's values as bytes: what threads and processes send each other.
//
// nil, booleans, numbers, strings, nested tables, and what pack() and unpack() of polyverso/ipc_values.lua make of userdata: tensors.
// Functions travel as their code, which only the threads of one process take from each other unless somebody asked for more.

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
  bool in_process = false;  ///< between threads: what is shared goes by reference
  bool upvalues = false;    ///< functions take copies of their upvalues along, else those that have some are refused
  bool functions = false;   ///< functions that came are loaded: their sender may run what it likes
};

/// Appends the value at `index`.
bool encode(lua_State* L, int index, const Manner& manner, Message& message, Failure& failure);

/// Pushes the value that begins at `at`, which it moves behind it.
/// @param into where a tensor's elements go: an index of the stack, or 0 for a new one
bool decode(lua_State* L, const Message& message, size_t& at, const Manner& manner, int into, Failure& failure);

/// encode(value): its bytes, as another process would be sent them
int encode_bytes(lua_State* L);
/// decode(bytes): the value; functions are refused
int decode_bytes(lua_State* L);

/// hooks(pack, unpack), for Lua
int set_hooks(lua_State* L);

}  // namespace mv::native
