#pragma once
// How processes of one machine, or of one file system, find the first among them.

#include "shared.hpp"
#include "socket.hpp"

namespace mv::native {

/// claim(path): the one who may write there where to find it, or nothing while somebody else may. It ends with its owner, however that ends.
int claim(lua_State* L);

/// claimed(path): what was written there by one who is still there; or nothing
int read_claimed(lua_State* L);

/// reserve(host): a port there that nobody else is given by chance as long as the first result lives; the port
int reserve(lua_State* L);

/// make_folder(path): its parents, too
int make_folder(lua_State* L);

/// hostname()
int host_name(lua_State* L);

/// Makes the metatables.
void open_meetings(lua_State* L);

}  // namespace mv::native
