#pragma once
// A process that speaks the shared-memory protocol itself: correctly up to a point.

#include <optional>
#include <string>
#include <vector>

#include "transport/fd.hpp"
#include "transport/shm/note.hpp"
#include "transport/shm/ring.hpp"
#include "transport/unix_socket.hpp"
#include "wire/handshake.hpp"

namespace mv::test {

class ShmStranger {
 public:
  /// Its offer after the hello. The defaults are correct.
  struct Offer {
    size_t bytes = transport::kControlBytes + transport::kRingBytes;
    std::optional<size_t> said_bytes = std::nullopt;
    uint64_t magic = transport::Control::kMagic;
    uint64_t ring_bytes = transport::kRingBytes;
    bool sealed = true;
    bool with_descriptors = true;
    bool bell_is_a_pipe = false;
  };

  explicit ShmStranger(const std::string& address);
  ~ShmStranger();

  bool connected() const { return static_cast<bool>(fd_); }
  bool send(std::span<const std::byte> bytes);
  bool introduce(base::Peer self, const std::string& secret = "");
  bool offer(const Offer& offer);
  /// Receives the node's offer and maps it.
  bool take_offer();
  /// Whether the other side closes the socket within 20 s; discards what it sends meanwhile.
  bool is_turned_away();

  transport::Control& control() { return *reinterpret_cast<transport::Control*>(memory_); }
  std::byte* ring() { return memory_ + transport::kControlBytes; }
  /// The node's side, read-only.
  const transport::Control& peer() const { return *reinterpret_cast<const transport::Control*>(peer_memory_); }
  void show(uint64_t written);
  /// Rings the node's bell, as after a write.
  void ring_bell();
  int socket() const { return fd_.get(); }

 private:
  transport::Fd fd_, memfd_, bell_, pipe_[2], peer_bell_;
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  std::byte* peer_memory_ = nullptr;
  size_t peer_bytes_ = 0;
};

}  // namespace mv::test
