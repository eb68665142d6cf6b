#pragma once
// Sockets in the abstract namespace, which reach processes of the same machine (and network namespace) only, leave
// nothing in any file system, and tell as which user the process at the other end runs.

#include <string>

#include "base/result.hpp"
#include "transport/fd.hpp"

namespace mv::transport {

/// MV_EADDRINUSE, MV_ESYSTEM.
base::Result<Fd> listen_abstract(const std::string& name);
/// A connected socket. MV_EUNREACHABLE if nobody listens there, or (`busy`) too many wait there already; MV_ESYSTEM for whatever else.
base::Result<Fd> connect_abstract(const std::string& name, bool* busy = nullptr);
/// Whether the process at the other end runs as the same user as this one. Root is a user like any other; a user that the kernel can't
/// name in this process's user namespace is nobody's.
bool is_same_user(int fd);

}  // namespace mv::transport
