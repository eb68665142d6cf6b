#pragma once
// The frame: a message as bytes.
//
//   prefix (16 bytes)   u32 magic, u32 header bytes, u64 payload bytes; little-endian
//   header              FlatBuffers (wire/polyverso.fbs), zero-padded to a multiple of 8
//   payload             raw little-endian values, zero-padded to a multiple of 8
//
// The padding keeps headers and payloads aligned if a frame starts at a multiple of 8.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/link.hpp"
#include "wire/polyverso_generated.h"

namespace mv::wire {

inline constexpr uint32_t kFrameMagic = 0x4d56'5001;
inline constexpr size_t kPrefixBytes = 16;
inline constexpr size_t kMaxHeaderBytes = 1 << 20;
/// No engine sends larger payloads. They are refused before memory is touched.
inline constexpr size_t kMaxPayloadBytes = 16 << 20;
/// Payloads up to this size are copied after their header, into one block.
inline constexpr size_t kSmallPayloadBytes = 4096;

constexpr size_t padded(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

struct Prefix {
  uint32_t header_bytes = 0;   ///< without padding
  uint64_t payload_bytes = 0;  ///< without padding
  size_t frame_bytes() const { return kPrefixBytes + padded(header_bytes) + padded(payload_bytes); }
};

/// Reads and checks a prefix of kPrefixBytes. MV_EPROTOCOL for a wrong magic or sizes beyond the limits.
base::Result<Prefix> read_prefix(std::span<const std::byte> bytes);

/// Verifies a header (8-byte aligned) and gives access to it. MV_EPROTOCOL if it is not a valid Message with a body.
base::Result<const Message*> read_header(std::span<const std::byte> bytes);

/// Writes the request number and the cumulative acknowledgement into a frame's header. rpc does this before each send.
void stamp(base::Frame& frame, uint64_t seq, uint64_t done);
/// Writes Message.part into a frame's header.
void stamp_part(base::Frame& frame, uint32_t part);
/// A copy of a frame without a payload, with one that is copied or referred to.
base::Frame frame_like(std::span<const std::byte> blank, std::span<const std::byte> copied, const base::PayloadRef& referred);
/// Checks a frame that was received as bytes inside of a message. MV_EPROTOCOL if it is not what FrameBuilder makes.
base::Status check(const base::Frame& frame);
/// A copy of a header in memory of its own. FlatBuffers does not report the extent of a message, so it is serialized again.
std::vector<std::byte> copy_header(const Message& message);

/// Builds frames: create a body in fbb(), then pass it to finish(). Not thread-safe; reuses its memory.
class FrameBuilder {
 public:
  flatbuffers::FlatBufferBuilder& fbb() { return fbb_; }

  /// A frame with this body. A small payload is copied after the header; a large one is referenced.
  template <typename T>
  base::Frame finish(Body kind, flatbuffers::Offset<T> body, const base::PayloadRef& payload = nullptr) {
    const auto offset = message(kind, body.Union(), base::Status());
    if (payload == nullptr) return assemble(offset, {}, nullptr);
    return payload->size() <= kSmallPayloadBytes ? assemble(offset, payload->bytes(), nullptr) : assemble(offset, {}, payload);
  }
  /// The same with a payload of at most kSmallPayloadBytes, copied.
  template <typename T>
  base::Frame finish_small(Body kind, flatbuffers::Offset<T> body, std::span<const std::byte> payload) {
    return assemble(message(kind, body.Union(), base::Status()), payload, nullptr);
  }
  /// The same message again, for another receiver.
  base::Frame copy(const Message& message, const base::PayloadRef& payload);
  /// An answer that carries a status.
  base::Frame answer(const base::Status& status);

 private:
  flatbuffers::Offset<Message> message(Body kind, flatbuffers::Offset<void> body, const base::Status& status);
  base::Frame assemble(flatbuffers::Offset<Message> message, std::span<const std::byte> copied, const base::PayloadRef& referred);

  flatbuffers::FlatBufferBuilder fbb_{512};
};

}  // namespace mv::wire
