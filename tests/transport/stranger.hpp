#pragma once
// A plain blocking socket that talks to a TCP road: politely up to a point, or not at all.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/tcp/socket.hpp"
#include "wire/hello.hpp"

namespace mv::test {

class Stranger {
 public:
  explicit Stranger(const std::string& address);

  bool connected() const { return static_cast<bool>(fd_); }
  bool send(std::span<const std::byte> bytes);
  bool send(const std::string& text);
  /// Goes through the hello as `self`; false if it was not completed.
  bool introduce(base::Peer self, const std::string& secret = "");
  /// Reads until the other side closes, at most `limit_ms` long; the bytes, or nothing if it stays open.
  std::optional<std::vector<std::byte>> read_to_end(int limit_ms = 20'000);
  void close() { fd_.reset(); }

 private:
  io::Fd fd_;
};

}  // namespace mv::test
