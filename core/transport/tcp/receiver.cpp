#include "transport/tcp/receiver.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/handshake.hpp"

namespace mv::transport {

static_assert(wire::kGoodbyeBytes == wire::kPrefixBytes);
static_assert(Receiver::kInPlaceBytes < Receiver::kBufferBytes);

Receiver::Receiver(base::LinkEvents& events, base::Peer from)
    : events_(events), from_(from), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

Receiver::Room Receiver::room() {
  const std::span<std::byte> buffer(buffer_.get(), kBufferBytes);
  if (state_ == State::kFrames) {
    if (begin_ != 0 &&
        skip_ == 0) {  // a part of a frame: at most kInPlaceBytes, or a header
      std::memmove(buffer.data(), buffer.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    return {buffer.subspan(end_).first(after_payload_ && end_ < kAheadBytes ? kAheadBytes - end_ : kBufferBytes - end_), {}};
  }
  if (state_ == State::kHeader) return {std::span(header_).subspan(header_got_), buffer};
  if (sink_->discards())
    return {buffer.first(std::min(kBufferBytes, wire::padded(prefix_.payload_bytes) - payload_got_)), {}};
  // Padding and the bytes after it go to the buffer, at an offset such that the next frame starts on a multiple of 8.
  return {sink_->room(payload_got_), buffer.subspan(prefix_.payload_bytes % 8, kAheadBytes)};
}

base::Status Receiver::received(size_t bytes) {
  const base::Status status = take(bytes);
  if (status.ok() && !stopped_ && inside_a_frame()) events_.on_part(from_);
  return status;
}

base::Status Receiver::take(size_t bytes) {
  if (state_ == State::kHeader) return take_header(bytes);
  if (state_ == State::kPayload) return take_payload(bytes);
  end_ += bytes;
  return take_frames();
}

base::Status Receiver::take_frames() {
  const size_t skipped = std::min(skip_, end_ - begin_);
  skip_ -= skipped;
  begin_ += skipped;
  while (!stopped_ && state_ == State::kFrames && end_ - begin_ >= wire::kPrefixBytes) {
    const std::span<const std::byte> arrived(buffer_.get() + begin_, end_ - begin_);
    if (wire::is_goodbye(arrived)) {
      goodbye_ = stopped_ = true;
      break;
    }
    const auto prefix = wire::read_prefix(arrived);
    if (!prefix.ok()) return prefix.status();
    bool taken = false;
    if (auto status = take_frame(prefix.value(), arrived.size(), taken); !status.ok()) return status;
    if (!taken) break;
  }
  if (begin_ == end_ && skip_ == 0) begin_ = end_ = 0;
  return {};
}

/// Delivers the frame at begin_ if it is complete, or starts to read its payload into a sink if it is large.
base::Status Receiver::take_frame(const wire::Prefix& prefix, size_t available, bool& taken) {
  const size_t frame_bytes = prefix.frame_bytes();
  const size_t body_at = wire::kPrefixBytes + wire::padded(prefix.header_bytes);
  if (available < frame_bytes && frame_bytes <= kInPlaceBytes) return {};
  const std::byte* frame = buffer_.get() + begin_;
  if (available < body_at) {
    if (body_at <= kBufferBytes) return {};
    header_.resize(wire::padded(prefix.header_bytes));
    header_got_ = available - wire::kPrefixBytes;
    std::memcpy(header_.data(), frame + wire::kPrefixBytes, header_got_);
    prefix_ = prefix;
    begin_ = end_ = 0;
    state_ = State::kHeader;
    return {};
  }
  const auto message = wire::read_header({frame + wire::kPrefixBytes, prefix.header_bytes});
  if (!message.ok()) return message.status();
  taken = true;
  if (available >= frame_bytes) {
    begin_ += frame_bytes;
    after_payload_ = false;
    events_.on_arrived(from_, frame_bytes);
    events_.on_message(from_, *message.value(), {frame + body_at, prefix.payload_bytes});
    return {};
  }
  header_.assign(frame + wire::kPrefixBytes, frame + body_at);
  const std::span<const std::byte> arrived(frame + body_at, available - body_at);
  begin_ = end_ = 0;
  begin_payload(prefix, arrived);
  return {};
}

base::Status Receiver::take_header(size_t bytes) {
  const size_t taken = std::min(bytes, header_.size() - header_got_);
  header_got_ += taken;
  if (header_got_ < header_.size()) return {};
  begin_ = 0;
  end_ = bytes - taken;
  state_ = State::kFrames;
  const auto message = wire::read_header(std::span<const std::byte>(header_).first(prefix_.header_bytes));
  if (!message.ok()) return message.status();
  const size_t payload_bytes = wire::padded(prefix_.payload_bytes);
  if (end_ >= payload_bytes) {
    begin_ = payload_bytes;
    events_.on_arrived(from_, prefix_.frame_bytes());
    events_.on_message(from_, *message.value(), {buffer_.get(), prefix_.payload_bytes});
    return take_frames();
  }
  const std::span<const std::byte> arrived(buffer_.get(), end_);
  begin_ = end_ = 0;
  begin_payload(prefix_, arrived);
  return {};
}

/// `arrived` is the beginning of the payload, and shorter than the payload with its padding.
void Receiver::begin_payload(const wire::Prefix& prefix, std::span<const std::byte> arrived) {
  prefix_ = prefix;
  sink_ = events_.on_header(from_, *flatbuffers::GetRoot<wire::Message>(header_.data()), prefix.payload_bytes);
  assert(sink_ != nullptr && (sink_->discards() || sink_->memory().size() == prefix.payload_bytes));
  payload_got_ = 0;
  state_ = State::kPayload;
  if (stopped_) return;
  payload_got_ = arrived.size();
  if (sink_->discards()) return;
  payload_got_ = std::min<size_t>(arrived.size(), prefix.payload_bytes);
  std::memcpy(sink_->memory().data(), arrived.data(), payload_got_);
  if (payload_got_ == prefix.payload_bytes) {  // only padding is missing
    end_payload();
    skip_ = wire::padded(prefix.payload_bytes) - arrived.size();
    begin_ = end_ = 8 - skip_;
  }
}

base::Status Receiver::take_payload(size_t bytes) {
  if (sink_->discards()) {
    payload_got_ += bytes;
    if (payload_got_ < wire::padded(prefix_.payload_bytes)) return {};
    end_payload();
    begin_ = end_ = skip_ = 0;
    return {};
  }
  const size_t taken = std::min(bytes, prefix_.payload_bytes - payload_got_);
  payload_got_ += taken;
  if (payload_got_ < prefix_.payload_bytes) return {};
  end_payload();
  skip_ = wire::padded(prefix_.payload_bytes) - prefix_.payload_bytes;
  begin_ = prefix_.payload_bytes % 8;
  end_ = begin_ + (bytes - taken);
  return take_frames();
}

void Receiver::end_payload() {
  state_ = State::kFrames;
  after_payload_ = true;
  const base::SinkRef sink = std::move(sink_);
  events_.on_arrived(from_, prefix_.frame_bytes());
  events_.on_payload(from_, *flatbuffers::GetRoot<wire::Message>(header_.data()), *sink);
}

}  // namespace mv::transport
