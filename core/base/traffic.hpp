#pragma once
// Counters of the messages between a node and one peer.

#include <array>
#include <cstddef>
#include <cstdint>

namespace mv::base {

/// The transport that carries a message.
enum class TransportKind : uint8_t { kInproc, kShm, kTcp, kUcx, kMpi };
inline constexpr std::array<const char*, 5> kTransportNames = {"inproc", "shm", "tcp", "ucx", "mpi"};

/// A count of messages, and of their bytes with headers and padding.
struct Flow {
  uint64_t messages = 0, bytes = 0;
  void count(size_t message_bytes) {
    ++messages;
    bytes += message_bytes;
  }
  void add(const Flow& other) {
    messages += other.messages;
    bytes += other.bytes;
  }
};

/// Counters for each direction and transport. Loop thread only.
struct Traffic {
  using ByTransport = std::array<Flow, kTransportNames.size()>;
  ByTransport sent, received;
  uint64_t reconnections = 0;  ///< connections to the peer restored, or replaced by another transport
};

}  // namespace mv::base
