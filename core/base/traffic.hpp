#pragma once
// What a node and one peer have sent each other.

#include <array>
#include <cstddef>
#include <cstdint>

namespace mv::base {

/// Which of the transports a message takes.
enum class TransportKind : uint8_t { kInproc, kShm, kTcp };
inline constexpr std::array<const char*, 3> kTransportNames = {"inproc", "shm", "tcp"};

/// Messages, and their bytes with headers and padding.
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

/// In each direction, by transport. Of the loop's thread.
struct Traffic {
  using ByTransport = std::array<Flow, kTransportNames.size()>;
  ByTransport sent, received;
  uint64_t reconnections = 0;  ///< times that the way to the peer was mended, or another one taken
};

}  // namespace mv::base
