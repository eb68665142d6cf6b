#include "transport/shm/receiver.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/sequence_lock.hpp"

namespace mv::transport {

namespace {

/// The read position is published at least this often, in bytes, to give the peer room.
constexpr uint64_t kTellEvery = 64 << 10;
/// Bytes of a lent payload to copy between two checks whether it was revoked.
constexpr size_t kCopyAtOnce = 256 << 10;

base::Status wrong_size(const Mark& mark) {
  return base::error(MV_EPROTOCOL, "a record ({:#010x}, {}, {}) is not within the written bytes", mark.magic,
                     mark.first, mark.second);
}

}  // namespace

ShmReceiver::ShmReceiver(base::LinkEvents& events, base::Peer from, const Control& peer, const std::byte* ring,
                         size_t bytes, Control& own, Find find, Forget forget)
    : events_(events),
      from_(from),
      peer_(peer),
      own_(own),
      find_(std::move(find)),
      forget_(std::move(forget)),
      ring_(ring, bytes) {}

base::Status ShmReceiver::take(size_t budget) {
  if (!ring_.set_written(peer_.written.load(std::memory_order_acquire)))
    return base::error(MV_EPROTOCOL, "its write position is invalid: {} bytes were read", ring_.position());
  const uint64_t until = ring_.position() + budget;
  while (!stopped_ && ring_.position() < until) {
    const auto record = ring_.next();
    if (!record) break;
    if (const base::Status status = take_record(*record); !status.ok()) return status;
    if (ring_.position() - told_ >= kTellEvery) tell_read();
  }
  tell_read();
  return ring_.wrong() ? base::error(MV_EPROTOCOL, "a skip mark is outside the written bytes") : base::Status();
}

bool ShmReceiver::pass_over() {
  spoiled_ = spoiled_ || !ring_.set_written(peer_.written.load(std::memory_order_acquire));
  if (spoiled_ || ring_.empty()) return false;
  ring_.skip_all();
  tell_read();
  return true;
}

void ShmReceiver::tell_read() {
  told_ = ring_.position();
  own_.read.store(told_, std::memory_order_release);
}

base::Status ShmReceiver::take_record(const RingReader::Record& record) {
  const auto kind = static_cast<RecordKind>(record.mark.magic);
  const bool in_parts = sink_ != nullptr;
  if (in_parts != (kind == RecordKind::kPart))
    return base::error(MV_EPROTOCOL, "unexpected record ({:#010x}): a payload {}", record.mark.magic,
                       in_parts ? "is incomplete" : "has not begun");
  switch (kind) {
    case RecordKind::kFrame:
      return take_frame(record);
    case RecordKind::kStart:
      return take_start(record);
    case RecordKind::kPart:
      return take_part(record);
    case RecordKind::kPlace:
      return take_place(record);
    case RecordKind::kForget:
      forget_(record.mark.first);
      ring_.consume(sizeof(Mark));
      return {};
    case RecordKind::kGoodbye:
      ring_.consume(sizeof(Mark));
      goodbye_ = stopped_ = true;
      return {};
    case RecordKind::kSkip:
      break;
  }
  return base::error(MV_EPROTOCOL, "a record starts with an unknown mark, {:#010x}", record.mark.magic);
}

/// Reads the sizes in a frame's prefix, and checks that the record, with `behind_header` more bytes, is within the
/// written part of the ring.
base::Result<wire::Prefix> ShmReceiver::read_mark(const RingReader::Record& record, size_t behind_header) {
  Mark mark = record.mark;
  mark.magic = wire::kFrameMagic;
  const auto prefix = wire::read_prefix(std::as_bytes(std::span(&mark, 1)));
  if (!prefix.ok()) return prefix.status();
  const size_t head = wire::kPrefixBytes + wire::padded(prefix.value().header_bytes);
  if (record_bytes(head + behind_header) > record.bytes.size()) return wrong_size(record.mark);
  return prefix;
}

base::Result<const wire::Message*> ShmReceiver::copy_header(const RingReader::Record& record,
                                                            const wire::Prefix& prefix) {
  header_.resize(wire::padded(prefix.header_bytes));
  std::memcpy(header_.data(), record.bytes.data() + wire::kPrefixBytes, prefix.header_bytes);
  return wire::read_header(std::span<const std::byte>(header_).first(prefix.header_bytes));
}

base::Status ShmReceiver::take_frame(const RingReader::Record& record) {
  const auto prefix =
      read_mark(record, wire::padded(record.mark.second > wire::kMaxPayloadBytes ? 0 : record.mark.second));
  if (!prefix.ok()) return prefix.status();
  const auto message = copy_header(record, prefix.value());
  if (!message.ok()) return message.status();
  const size_t head = wire::kPrefixBytes + wire::padded(prefix.value().header_bytes);
  events_.on_arrived(from_, prefix.value().frame_bytes());
  events_.on_message(from_, *message.value(), record.bytes.subspan(head, prefix.value().payload_bytes));
  ring_.consume(record_bytes(prefix.value().frame_bytes()));
  return {};
}

// ------------------------------------------------------------ payloads in parts

base::Status ShmReceiver::take_start(const RingReader::Record& record) {
  const auto prefix = read_mark(record, 0);
  if (!prefix.ok()) return prefix.status();
  const auto message = copy_header(record, prefix.value());
  if (!message.ok()) return message.status();
  ring_.consume(record_bytes(wire::kPrefixBytes + wire::padded(prefix.value().header_bytes)));
  payload_bytes_ = prefix.value().payload_bytes;
  payload_got_ = 0;
  if (payload_bytes_ == 0) return base::error(MV_EPROTOCOL, "an empty payload was sent in parts");
  sink_ = events_.on_header(from_, *message.value(), payload_bytes_);
  assert(sink_ != nullptr && (sink_->discards() || sink_->memory().size() == payload_bytes_));
  return {};
}

base::Status ShmReceiver::take_part(const RingReader::Record& record) {
  const size_t bytes = record.mark.first;
  if (bytes == 0 || bytes > payload_bytes_ - payload_got_) return wrong_size(record.mark);
  if (record_bytes(sizeof(Mark) + bytes) > record.bytes.size()) return wrong_size(record.mark);
  if (!sink_->discards()) std::memcpy(sink_->room(payload_got_).data(), record.bytes.data() + sizeof(Mark), bytes);
  payload_got_ += bytes;
  ring_.consume(record_bytes(sizeof(Mark) + bytes));
  if (payload_got_ == payload_bytes_) end_payload();
  return {};
}

void ShmReceiver::end_payload() {
  const base::SinkRef sink = std::move(sink_);
  events_.on_arrived(from_, wire::kPrefixBytes + header_.size() + wire::padded(payload_bytes_));
  events_.on_payload(from_, *flatbuffers::GetRoot<wire::Message>(header_.data()), *sink);
}

// ------------------------------------------------------------ payloads in the sender's own shared memory

base::Status ShmReceiver::take_place(const RingReader::Record& record) {
  const auto prefix = read_mark(record, 0);
  if (!prefix.ok()) return prefix.status();
  const size_t place_at = record_bytes(wire::kPrefixBytes + wire::padded(prefix.value().header_bytes));
  if (place_at + sizeof(PayloadLocation) > record.bytes.size()) return wrong_size(record.mark);
  const auto message = copy_header(record, prefix.value());
  if (!message.ok()) return message.status();

  const auto& place = *reinterpret_cast<const PayloadLocation*>(record.bytes.data() + place_at);
  const uint64_t number = place.segment.load(std::memory_order_relaxed);
  const uint64_t offset = place.offset.load(std::memory_order_relaxed);
  const uint64_t bytes = prefix.value().payload_bytes;
  const bool is_lent = place.is_lent.load(std::memory_order_relaxed) != 0;
  const auto is_given_up = [&] { return place.revoked.load(std::memory_order_relaxed) == PayloadLocation::kGivenUp; };
  if (is_given_up()) {
    stopped_ = true;  // the end of the socket follows
    return {};
  }
  if (!is_lent || place.revoked.load(std::memory_order_relaxed) == 0) {
    const auto memory = find_(number);
    if (memory == nullptr || offset % 8 != 0 || offset > memory->bytes() || bytes > memory->bytes() - offset || bytes == 0)
      return base::error(MV_EPROTOCOL, "a payload of {} bytes at offset {} is not within segment {}", bytes, offset, number);
    const std::span<const std::byte> payload(memory->data() + offset, bytes);
    if (is_lent) {
      take_lent(*message.value(), payload, place);
    } else {
      events_.on_arrived(from_, prefix.value().frame_bytes());
      events_.on_message(from_, *message.value(), payload);
      base::sequence_fence();
      stopped_ = stopped_ || is_given_up();
    }
  }
  ring_.consume(place_at + sizeof(PayloadLocation));
  tell_read();
  return {};
}

/// Copies a lent payload, and discards the copy if the sender has revoked the payload meanwhile: see PayloadLocation.
void ShmReceiver::take_lent(const wire::Message& message, std::span<const std::byte> bytes, const PayloadLocation& place) {
  payload_bytes_ = bytes.size();
  sink_ = events_.on_header(from_, message, payload_bytes_);
  const auto is_revoked = [&] { return place.revoked.load(std::memory_order_relaxed) != 0; };
  for (size_t at = 0; at < bytes.size() && !sink_->discards() && !is_revoked(); at += kCopyAtOnce) {
    [[maybe_unused]] const base::RacyReads racy;
    std::memcpy(sink_->room(at).data(), bytes.data() + at, std::min(kCopyAtOnce, bytes.size() - at));
  }
  base::sequence_fence();
  if (is_revoked()) sink_->discard();
  end_payload();
}

}  // namespace mv::transport
