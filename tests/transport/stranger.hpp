#pragma once
// A plain blocking socket that speaks to a TCP transport: correctly up to a point, or not at all.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/tcp/socket.hpp"
#include "wire/handshake.hpp"

namespace mv::test {

class Stranger {
 public:
  explicit Stranger(const std::string& address);

  bool connected() const { return static_cast<bool>(fd_); }
  bool send(std::span<const std::byte> bytes);
  bool send(const std::string& text);
  /// Performs the hello as `self`; false if it was not completed.
  bool introduce(base::Peer self, const std::string& secret = "");
  /// Without a secret: with the listener's token, but bound to other `ends`, as through a relay.
  bool introduce_between(base::Peer self, const std::string& ends);
  /// Reads until the other side closes, for at most `limit_ms`. Returns the bytes, or nothing if the connection stays open.
  std::optional<std::vector<std::byte>> read_to_end(int limit_ms = 20'000);
  /// From now on its hello says that it resumes a connection, and that it waits `patience_ms` at most for acknowledgements.
  void mend(int patience_ms);
  /// Reads `bytes` bytes, or until the other side closes.
  std::vector<std::byte> read(size_t bytes);
  void close() { fd_.reset(); }

 private:
  bool introduce(base::Peer self, const std::string& secret, const std::string& ends);
  bool prove(wire::Handshake& handshake, const std::string& secret, const std::string& ends) const;

  const std::string address_;
  bool mends_ = false;
  transport::Fd fd_;
};

}  // namespace mv::test
