#include "wire/frame.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

namespace mv::wire {

static_assert(std::endian::native == std::endian::little, "payloads travel as they lie in memory, which must be little-endian");

namespace {

struct RawPrefix {
  uint32_t magic;
  uint32_t header_bytes;
  uint64_t payload_bytes;
};
static_assert(sizeof(RawPrefix) == kPrefixBytes);

}  // namespace

base::Result<Prefix> read_prefix(std::span<const std::byte> bytes) {
  RawPrefix raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (raw.magic != kFrameMagic) return base::error(MV_EPROTOCOL, "a frame starts with {:#010x}, not {:#010x}", raw.magic, kFrameMagic);
  if (raw.header_bytes == 0 || raw.header_bytes > kMaxHeaderBytes)
    return base::error(MV_EPROTOCOL, "a frame's header has {} bytes; 1 to {} are allowed", raw.header_bytes, kMaxHeaderBytes);
  if (raw.payload_bytes > kMaxPayloadBytes)
    return base::error(MV_EPROTOCOL, "a frame's payload has {} bytes; at most {} are allowed", raw.payload_bytes, kMaxPayloadBytes);
  return Prefix{raw.header_bytes, raw.payload_bytes};
}

base::Result<const Message*> read_header(std::span<const std::byte> bytes) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), /*max_depth=*/16, /*max_tables=*/1 << 16);
  if (!verifier.VerifyBuffer<Message>(nullptr)) return base::error(MV_EPROTOCOL, "a frame's header is not a valid message");
  const auto* message = flatbuffers::GetRoot<Message>(bytes.data());
  if (message->body() == nullptr || message->body_type() > Body::MAX)
    return base::error(MV_EPROTOCOL, "a message has a body that this version does not know (kind {})", static_cast<int>(message->body_type()));
  // The verifier checks the alignment of a vector's length, not of its elements: those of 8 bytes may be misaligned.
  const auto* progress = message->body_as_Progress();
  if (progress != nullptr && progress->pending() != nullptr && reinterpret_cast<uintptr_t>(progress->pending()->Data()) % 8 != 0)
    return base::error(MV_EPROTOCOL, "a frame's header is not aligned");
  return message;
}

void stamp(base::Frame& frame, uint64_t seq, uint64_t done) {
  auto* message = flatbuffers::GetMutableRoot<Message>(frame.head.data() + kPrefixBytes);
  message->mutate_seq(seq);
  message->mutate_done(done);
}

void stamp_part(base::Frame& frame, uint32_t part) {
  flatbuffers::GetMutableRoot<Message>(frame.head.data() + kPrefixBytes)->mutate_part(part);
}

base::Frame frame_like(std::span<const std::byte> blank, std::span<const std::byte> copied, const base::PayloadRef& referred) {
  base::Frame frame;
  frame.head.reserve(blank.size() + padded(copied.size()));
  frame.head.assign(blank.begin(), blank.end());
  frame.head.insert(frame.head.end(), copied.begin(), copied.end());
  frame.head.resize(blank.size() + padded(copied.size()));
  const uint64_t payload_bytes = referred != nullptr ? referred->size() : copied.size();
  std::memcpy(frame.head.data() + offsetof(RawPrefix, payload_bytes), &payload_bytes, sizeof payload_bytes);
  frame.tail = referred;
  return frame;
}

base::Status check(const base::Frame& frame) {
  const auto prefix = frame.head.size() >= kPrefixBytes ? read_prefix(std::span(frame.head).first(kPrefixBytes))
                                                        : base::Result<Prefix>(base::error(MV_EPROTOCOL, "a frame without a prefix"));
  if (!prefix.ok()) return prefix.status();
  const uint64_t payload = frame.tail != nullptr ? 0 : padded(prefix.value().payload_bytes);
  if (frame.head.size() != kPrefixBytes + padded(prefix.value().header_bytes) + payload ||
      (frame.tail != nullptr && frame.tail->size() != prefix.value().payload_bytes))
    return base::error(MV_EPROTOCOL, "a frame of another size than its prefix says");
  const auto header = read_header(std::span(frame.head).subspan(kPrefixBytes, prefix.value().header_bytes));
  return header.ok() ? base::Status() : header.status();
}

flatbuffers::Offset<Message> FrameBuilder::message(Body kind, flatbuffers::Offset<void> body, const base::Status& status) {
  const auto text = status.ok() ? flatbuffers::Offset<flatbuffers::String>() : fbb_.CreateString(status.text());
  fbb_.ForceDefaults(true);  // stamp() can only change fields that are present
  const auto message = CreateMessage(fbb_, 0, 0, status.code(), text, kind, body);
  fbb_.ForceDefaults(false);
  return message;
}

base::Frame FrameBuilder::answer(const base::Status& status) {
  return assemble(message(Body::Reply, CreateReply(fbb_).Union(), status), {}, nullptr);
}

base::Frame FrameBuilder::assemble(flatbuffers::Offset<Message> message, std::span<const std::byte> copied,
                                   const base::PayloadRef& referred) {
  fbb_.Finish(message);
  const RawPrefix prefix{kFrameMagic, fbb_.GetSize(), referred ? referred->size() : copied.size()};
  const size_t header_end = kPrefixBytes + padded(prefix.header_bytes);
  base::Frame frame;
  frame.head.resize(header_end + padded(copied.size()));  // zeroed, so the padding is defined
  std::memcpy(frame.head.data(), &prefix, sizeof prefix);
  std::memcpy(frame.head.data() + kPrefixBytes, fbb_.GetBufferPointer(), prefix.header_bytes);
  if (!copied.empty()) std::memcpy(frame.head.data() + header_end, copied.data(), copied.size());
  frame.tail = referred;
  fbb_.Clear();
  return frame;
}

}  // namespace mv::wire
