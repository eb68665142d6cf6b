#include "transport/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace mv::transport {

namespace {

struct Address {
  sockaddr_un storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address abstract_address(const std::string& name) {
  Address address;
  address.storage.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof address.storage.sun_path - 1);
  std::memcpy(address.storage.sun_path + 1, name.data(), bytes);  // the leading zero makes it abstract
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return address;
}

/// The kernel's number for users that have none in this process's user namespace.
constexpr uid_t kNobodysUser = 65534;

/// False in a user namespace where several users may have the same number.
bool sees_all_users() {
  std::ifstream map("/proc/self/uid_map");
  uint64_t inside = 0, outside = 0, count = 0;
  return map >> inside >> outside >> count && inside == 0 && outside == 0 && count == UINT32_MAX;
}

Fd stream_socket() { return Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

}  // namespace

base::Result<Fd> listen_abstract(const std::string& name) {
  Fd fd = stream_socket();
  const Address address = abstract_address(name);
  if (fd && bind(fd.get(), address.get(), address.length) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd;
  if (errno == EADDRINUSE) return base::error(MV_EADDRINUSE, "another process already listens as \"{}\"", name);
  return base::error(MV_ESYSTEM, "can't listen as \"{}\": {}", name, std::strerror(errno));
}

base::Result<Fd> connect_abstract(const std::string& name, bool* busy) {
  Fd fd = stream_socket();
  const Address address = abstract_address(name);
  if (fd && connect(fd.get(), address.get(), address.length) == 0) return fd;
  if (busy != nullptr) *busy = errno == EAGAIN;
  const mv_status code = errno == ECONNREFUSED || errno == EAGAIN ? MV_EUNREACHABLE : MV_ESYSTEM;
  return base::error(code, "can't reach \"{}\" on this machine: {}", name, std::strerror(errno));
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) return false;
  return peer.uid != kNobodysUser || sees_all_users();
}

}  // namespace mv::transport
