#include "transport/shm/sender.hpp"

#include <algorithm>
#include <cstring>

#include "base/sequence_lock.hpp"

namespace mv::transport {

namespace {

std::byte* append(std::byte* to, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

void set_magic(std::byte* record, RecordKind kind) { std::memcpy(record, &kind, sizeof kind); }

}  // namespace

void Sender::push(const base::Frame& frame) {
  if (waiting_.empty() && !frame.tail && put_whole(frame)) return;  // most frames: without a copy in the queue
  QueuedFrame next{frame};
  if (!waiting_.empty() || !put(next)) waiting_.push_back(std::move(next));
}

void Sender::push_mark(RecordKind kind, uint32_t number) {
  if (!waiting_.empty() || !put_mark(kind, number)) waiting_.push_back({{}, kind, number});
}

bool Sender::put(QueuedFrame& next) {
  if (next.mark != RecordKind::kFrame) return put_mark(next.mark, next.number);
  if (!next.started) {
    if (const auto placed = put_place(next.frame)) return *placed;
    if (!next.frame.tail || next.frame.bytes() <= kWholeBytes) return put_whole(next.frame);
  }
  return put_parts(next);
}

bool Sender::put_mark(RecordKind kind, uint32_t number) {
  std::byte* record = ring_.reserve(sizeof(Mark));
  if (record == nullptr) return false;
  const Mark mark{static_cast<uint32_t>(kind), number, 0};
  std::memcpy(record, &mark, sizeof mark);
  ring_.commit(sizeof mark);
  return true;
}

bool Sender::put_whole(const base::Frame& frame) {
  const size_t bytes = record_bytes(frame.bytes());
  std::byte* record = ring_.reserve(bytes);
  if (record == nullptr) return false;
  record = append(record, frame.head);
  if (frame.tail) append(record, frame.tail->bytes());
  ring_.commit(bytes);
  return true;
}

bool Sender::put_parts(QueuedFrame& next) {
  const base::Frame& frame = next.frame;
  if (!next.started) {
    std::byte* record = ring_.reserve(record_bytes(frame.head.size()));
    if (record == nullptr) return false;
    append(record, frame.head);
    set_magic(record, RecordKind::kStart);
    ring_.commit(record_bytes(frame.head.size()));
    next.started = true;
  }
  while (next.sent < frame.tail->size()) {
    const size_t part = std::min(kPartBytes, frame.tail->size() - next.sent), bytes = record_bytes(sizeof(Mark) + part);
    std::byte* record = ring_.reserve(bytes);
    if (record == nullptr) return false;
    const Mark mark{static_cast<uint32_t>(RecordKind::kPart), static_cast<uint32_t>(part), 0};
    std::memcpy(record, &mark, sizeof mark);
    append(record + sizeof mark, frame.tail->bytes().subspan(next.sent, part));  // at its current address
    ring_.commit(bytes);
    next.sent += part;
    own_.written.store(ring_.position(), std::memory_order_release);  // the peer copies at the same time
  }
  return true;
}

// ------------------------------------------------------------ payloads in shared memory

std::optional<bool> Sender::put_place(const base::Frame& frame) {
  if (!frame.tail || frame.tail->size() < kPlaceBytes) return std::nullopt;
  auto memory = frame.tail->shared();
  if (memory == nullptr) return std::nullopt;
  const auto offset = static_cast<size_t>(frame.tail->bytes().data() - memory->data());
  if (offset % 8 != 0) return std::nullopt;
  const auto number = introduce_(memory);
  if (!number || !frame.tail->borrow(*this)) return std::nullopt;

  const size_t bytes = record_bytes(frame.head.size()) + sizeof(PayloadLocation);
  std::byte* record = ring_.reserve(bytes);
  if (record == nullptr) {
    if (std::none_of(placed_.begin(), placed_.end(), [&](const Placed& p) { return p.frame.tail == frame.tail; }))
      frame.tail->returned();
    return false;
  }
  append(record, frame.head);
  set_magic(record, RecordKind::kPlace);
  auto* place = new (record + record_bytes(frame.head.size())) PayloadLocation{{*number}, {offset}, {0}, {frame.tail->is_lent() ? 1U : 0U}};
  ring_.commit(bytes);
  placed_.push_back({ring_.position(), frame, std::move(memory), place});
  return true;
}

/// Revokes a payload whose owner needs its memory back. A peer that is reading it detects afterwards that its copy is
/// void: see PayloadLocation. The payload is sent again, and rpc deduplicates the requests.
void Sender::give_back(base::Payload& payload) {
  std::vector<base::Frame> again;
  for (Placed& placed : placed_) {
    if (placed.frame.tail.get() != &payload || peer_.read.load(std::memory_order_acquire) >= placed.end) continue;
    placed.place->revoked.store(PayloadLocation::kRevoked, std::memory_order_relaxed);
    again.push_back(placed.frame);
  }
  base::sequence_fence();  // before any write of the owner there
  std::erase_if(placed_, [&](const Placed& placed) { return placed.frame.tail.get() == &payload; });
  for (base::Frame& frame : again) waiting_.push_back({std::move(frame)});
}

void Sender::let_go() {
  for (Placed& placed : placed_) placed.place->revoked.store(PayloadLocation::kGivenUp, std::memory_order_relaxed);
  base::sequence_fence();  // before any write of the owners there
  for (Placed& placed : placed_) placed.frame.tail->returned();
  placed_.clear();
  waiting_.clear();
}

// ------------------------------------------------------------ progress

base::Status Sender::advance() {
  const uint64_t read = peer_.read.load(std::memory_order_acquire);
  if (read != ring_.read()) {
    const uint64_t before = ring_.read();
    if (!ring_.set_read(read))
      return base::error(MV_EPROTOCOL, "its read position {} is invalid after {}, with {} written", read, before,
                         ring_.position());
    while (!placed_.empty() && placed_.front().end <= read) {
      const base::PayloadRef payload = placed_.front().frame.tail;
      placed_.pop_front();
      if (std::none_of(placed_.begin(), placed_.end(), [&](const Placed& p) { return p.frame.tail == payload; }))
        payload->returned();
    }
  }
  while (!waiting_.empty() && put(waiting_.front())) waiting_.pop_front();
  return {};
}

bool Sender::publish() {
  own_.written.store(ring_.position(), std::memory_order_release);
  return std::exchange(published_, ring_.position()) != ring_.position();
}

uint64_t Sender::wish(bool to_the_end) const {
  if (waiting_.empty()) return to_the_end && !ring_.all_read() ? ring_.position() : kNoWish;
  // Half of the unread bytes, so that the two sides do not wake each other for every record.
  const uint64_t unread = ring_.position() - ring_.read();
  return ring_.read() + std::max<uint64_t>(kRecordUnit, unread / 2 / kRecordUnit * kRecordUnit);
}

}  // namespace mv::transport
