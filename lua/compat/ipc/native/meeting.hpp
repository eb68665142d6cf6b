#pragma once
// How processes of one machine, or of one file system, find the first of them.

#include "shared.hpp"
#include "socket.hpp"

namespace mv::native {

/// claim(path): a claim that lets its owner write its address there; nothing while another process holds it. It ends with its owner in any
/// case.
int claim(lua_State* L);

/// claimed(path): the address written there by a living owner; or nothing
int read_claimed(lua_State* L);

/// reserve(host): reserves a port there, so that nobody else gets it by chance as long as the first result lives; returns the port
int reserve(lua_State* L);

/// make_folder(path): also makes its parents
int make_folder(lua_State* L);

/// hostname()
int host_name(lua_State* L);

/// Makes the metatables.
void open_meetings(lua_State* L);

}  // namespace mv::native
