#pragma once
// Unix sockets in the abstract namespace. They reach only processes of the same machine (and network namespace), leave
// nothing in any file system, and report the user of the process at the other end.

#include <string>

#include "base/result.hpp"
#include "transport/fd.hpp"

namespace mv::transport {

/// MV_EADDRINUSE, MV_ESYSTEM.
base::Result<Fd> listen_abstract(const std::string& name);
/// A connected socket. MV_EUNREACHABLE if no process listens there, or if the listener's backlog is full, which sets
/// `*busy`; MV_ESYSTEM for any other error.
base::Result<Fd> connect_abstract(const std::string& name, bool* busy = nullptr);
/// Whether the process at the other end runs as the same user as this one. Root is a user like any other. A user
/// without a number in this process's user namespace never counts as the same.
bool is_same_user(int fd);

}  // namespace mv::transport
