#pragma once
// What a node and one peer have sent each other.

#include <array>
#include <cstddef>
#include <cstdint>

namespace mv::base {

/// Which of the roads of io/ a message takes.
enum class RoadKind : uint8_t { kInproc, kShm, kTcp };
inline constexpr std::array<const char*, 3> kRoadNames = {"inproc", "shm", "tcp"};

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

/// In each direction, by road. Of the loop's thread.
struct Traffic {
  using ByRoad = std::array<Flow, kRoadNames.size()>;
  ByRoad sent, received;
  uint64_t reconnections = 0;  ///< times that the way to the peer was mended, or another one taken
};

}  // namespace mv::base
