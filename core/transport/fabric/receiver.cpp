#include "transport/fabric/receiver.hpp"

#include <algorithm>
#include <cstring>

#include "wire/frame.hpp"

namespace mv::transport {

namespace {

bool is_aligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % 8 == 0; }

base::Status garbage(const char* what) { return base::error(MV_EPROTOCOL, "a message by the fabric {}", what); }

const wire::Message& message_in(std::span<const std::byte> head) { return *flatbuffers::GetRoot<wire::Message>(head.data() + wire::kPrefixBytes); }

/// Verifies the head of a frame, aligned to 8.
base::Result<wire::Prefix> read_head(std::span<const std::byte> head) {
  if (head.size() < wire::kPrefixBytes) return garbage("has half a frame");
  const auto prefix = wire::read_prefix(head.first(wire::kPrefixBytes));
  if (!prefix.ok()) return prefix.status();
  if (head.size() < wire::kPrefixBytes + wire::padded(prefix.value().header_bytes)) return garbage("has half a header");
  const auto message = wire::read_header(head.subspan(wire::kPrefixBytes, prefix.value().header_bytes));
  if (!message.ok()) return message.status();
  return prefix;
}

}  // namespace

std::optional<Arrival> Arrival::of(Fabric& fabric, const mv_fabric_event& event) {
  Arrival arrival(fabric, event);
  if (event.header_bytes < sizeof(LineHeader)) return std::nullopt;
  return arrival;
}

LineHeader Arrival::header() const {
  LineHeader header;
  std::memcpy(&header, event_.header, sizeof header);
  return header;
}

FabricReceiver::~FabricReceiver() {
  if (fetching_ != nullptr) fetching_->receiver = nullptr;
}

base::Status FabricReceiver::take(Arrival arrival) {
  const uint64_t place = arrival.header().place;
  if (place < next_ || early_.contains(place)) return garbage("has the place of another one");
  early_.emplace(place, std::move(arrival));
  if (fetching_ != nullptr && !stopped_) events_.on_part(from_);
  return deliver();
}

base::Status FabricReceiver::deliver() {
  while (fetching_ == nullptr && !goodbye_) {
    const auto first = early_.find(next_);
    if (first == early_.end()) return {};
    Arrival arrival = std::move(first->second);
    early_.erase(first);
    ++next_;
    const bool opens = arrival.header().kind == LineKind::kOpen;
    if (const base::Status status = deliver_one(std::move(arrival)); !status.ok() || opens) return status;
  }
  return {};
}

base::Status FabricReceiver::deliver_one(Arrival arrival) {
  const LineKind kind = arrival.header().kind;
  if (opened_ == (kind == LineKind::kOpen)) return garbage("opens its line twice, or not at all");
  if (kind == LineKind::kOpen) opened_ = true;
  if (kind == LineKind::kGoodbye) goodbye_ = true;
  if (stopped_ || kind == LineKind::kOpen || kind == LineKind::kGoodbye) return {};
  if (kind == LineKind::kTailed) head_.assign(arrival.head().begin(), arrival.head().end());
  if (kind == LineKind::kTailed || kind == LineKind::kTail) return take_tail(std::move(arrival));
  if (kind != LineKind::kFrame && kind != LineKind::kHead) return garbage("is of an unknown kind");
  if (arrival.bytes() > wire::kPrefixBytes + wire::kMaxHeaderBytes + wire::kSmallPayloadBytes + 16) return garbage("has a frame that is too large");
  fetched_kind_ = kind;
  if (!arrival.is_here()) {
    auto block = fabric_.block(arrival.bytes());
    if (!block.ok()) return block.status();
    return begin_fetch(std::move(arrival), /*is_head=*/true, std::move(block).value(), nullptr);
  }
  if (kind == LineKind::kHead) {
    head_.assign(arrival.body().begin(), arrival.body().end());
    return {};
  }
  if (is_aligned(arrival.body().data())) return take_frame(arrival.body());
  const std::vector<std::byte> aligned(arrival.body().begin(), arrival.body().end());
  return take_frame(aligned);
}

/// A frame without a tail.
base::Status FabricReceiver::take_frame(std::span<const std::byte> frame) {
  const auto prefix = read_head(frame);
  if (!prefix.ok()) return prefix.status();
  if (frame.size() != prefix.value().frame_bytes()) return garbage("has a frame of another size than it says");
  const size_t payload_at = wire::kPrefixBytes + wire::padded(prefix.value().header_bytes);
  events_.on_arrived(from_, frame.size());
  events_.on_message(from_, message_in(frame), frame.subspan(payload_at, prefix.value().payload_bytes));
  return {};
}

/// The tail that belongs to head_.
base::Status FabricReceiver::take_tail(Arrival arrival) {
  const auto prefix = read_head(head_);
  if (!prefix.ok()) return prefix.status();
  if (prefix.value().payload_bytes != arrival.bytes() || head_.size() != wire::kPrefixBytes + wire::padded(prefix.value().header_bytes))
    return garbage("has a frame of another size than it says");
  if (arrival.is_here() && is_aligned(arrival.body().data())) {
    events_.on_arrived(from_, prefix.value().frame_bytes());
    events_.on_message(from_, message_in(head_), arrival.body());
    return {};
  }
  sink_ = events_.on_header(from_, message_in(head_), arrival.bytes());
  if (stopped_) return {};
  if (arrival.is_here() || sink_->discards()) {
    end_payload(arrival.is_here() ? arrival.body() : std::span<const std::byte>());
    return {};
  }
  if (sink_->keep() != nullptr) return begin_fetch(std::move(arrival), /*is_head=*/false, nullptr, sink_);
  // The memory may go away at any time, which no network device would notice.
  auto block = fabric_.block(arrival.bytes());
  if (!block.ok()) return block.status();
  return begin_fetch(std::move(arrival), /*is_head=*/false, std::move(block).value(), nullptr);
}

/// Fetches into the block, or into the sink, whose memory something keeps.
base::Status FabricReceiver::begin_fetch(Arrival arrival, bool is_head, std::unique_ptr<Fabric::Block> block, base::SinkRef sink) {
  const size_t bytes = arrival.bytes();
  auto fetch = std::make_unique<Fetch>(Fetch{this, std::move(block), sink != nullptr ? sink->keep() : nullptr, {}});
  fetch->memory = sink != nullptr ? sink->memory() : std::span(fetch->block->data(), bytes);
  if (base::Status status = fabric_.receive(arrival.give(), fetch->memory, fetch.get()); !status.ok()) return status;
  fetches_head_ = is_head;
  fetching_ = fetch.get();  // until fetched()
  fetches_[fetching_] = std::move(fetch);
  return {};
}

base::Status FabricReceiver::fetched(std::unique_ptr<Fetch> fetch, mv_status status) {
  fetching_ = nullptr;
  if (stopped_) return deliver();
  if (status != MV_OK) return base::error(MV_EPEERLOST, "a payload could not be fetched");
  if (!fetches_head_) {
    end_payload(fetch->memory);
  } else if (fetched_kind_ == LineKind::kHead) {
    head_.assign(fetch->memory.begin(), fetch->memory.end());
  } else if (base::Status taken = take_frame(fetch->memory); !taken.ok()) {
    return taken;
  }
  fetch.reset();
  return deliver();
}

void FabricReceiver::end_payload(std::span<const std::byte> from) {
  const base::SinkRef sink = std::move(sink_);
  const std::span<std::byte> to = sink->discards() ? std::span<std::byte>() : sink->memory();
  if (!to.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), std::min(to.size(), from.size()));
  const auto prefix = wire::read_prefix(std::span<const std::byte>(head_).first(wire::kPrefixBytes));
  events_.on_arrived(from_, prefix.value().frame_bytes());
  events_.on_payload(from_, message_in(head_), *sink);
}

}  // namespace mv::transport
