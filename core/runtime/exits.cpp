#include "runtime/exits.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace mv::runtime {

std::optional<std::string> first_exit(const std::string& path) {
  // In another container the path may name anything, even a pipe.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return std::nullopt;
  std::array<char, 512> bytes;
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  close(fd);
  std::string_view text(bytes.data(), got > 0 ? static_cast<size_t>(got) : 0);
  if (!text.starts_with(kExitsGreeting)) return std::nullopt;
  text.remove_prefix(kExitsGreeting.size());
  const size_t end = text.find('\n');
  return end != std::string_view::npos ? std::optional(std::string(text.substr(0, end))) : std::nullopt;
}

}  // namespace mv::runtime
