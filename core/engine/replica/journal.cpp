#include "engine/replica/journal.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/memory_fence.hpp"
#include "base/sequence_lock.hpp"

namespace mv::replica {

namespace {
constexpr size_t kPageBytes = 4096;
/// Room for some thousands of small inputs: what a back-up may lag behind while the server acknowledges at once.
constexpr size_t kRingBytes = 1 << 20;
/// Copying a larger input takes about as long as the back-up's acknowledgement.
constexpr size_t kMostBytes = 64 << 10;
constexpr size_t kRecordUnit = 16;

struct RecordHead {
  uint64_t number;  ///< 0: the next record is at the beginning of the ring
  uint64_t bytes;   ///< of the frame, which follows
};
static_assert(sizeof(RecordHead) == kRecordUnit && sizeof(JournalPage) <= kPageBytes && kRingBytes % kRecordUnit == 0);

constexpr size_t record_bytes(size_t frame) { return sizeof(RecordHead) + (frame + kRecordUnit - 1) / kRecordUnit * kRecordUnit; }

RecordHead head_at(const std::byte* at) {
  RecordHead head;
  std::memcpy(&head, at, sizeof head);
  return head;
}
}  // namespace

// ---- the server

base::Result<std::shared_ptr<JournalWriter>> JournalWriter::make(base::Peer backup, uint64_t id) {
  auto memory = base::SharedMemory::make("polyverso-journal", kPageBytes + kRingBytes);
  if (!memory.ok()) return memory.status();
  return std::shared_ptr<JournalWriter>(new JournalWriter(backup, id, std::move(memory).value()));
}

JournalWriter::JournalWriter(base::Peer backup, uint64_t id, std::shared_ptr<base::SharedMemory> memory)
    : backup_(backup), id_(id), memory_(std::move(memory)) {
  page().id.store(id_);
  page().magic.store(JournalPage::kMagic);
}

bool JournalWriter::set_gate(std::shared_ptr<base::SharedMemory> gate) {
  if (gate->bytes() < sizeof(GatePage)) return false;
  const auto& page = *reinterpret_cast<const GatePage*>(gate->data());
  if (page.magic.load() != GatePage::kMagic || page.id.load() != id_) return false;
  gate_ = std::move(gate);
  return true;
}

bool JournalWriter::append(uint64_t number, const base::Frame& frame) {
  const size_t bytes = frame.bytes();
  if (bytes > kMostBytes || !is_open()) return false;
  std::byte* const record = reserve(record_bytes(bytes));
  if (record == nullptr) return false;
  const RecordHead head{number, bytes};
  std::memcpy(record, &head, sizeof head);
  std::memcpy(record + sizeof head, frame.head.data(), frame.head.size());
  if (frame.tail != nullptr) std::memcpy(record + sizeof head + frame.head.size(), frame.tail->bytes().data(), frame.tail->size());
  end_ += record_bytes(bytes);
  page().end.store(end_, std::memory_order_release);
  base::full_fence();
  return is_open();
}

/// Memory for a record, which the back-up does not see yet; null if there is no room.
std::byte* JournalWriter::reserve(size_t bytes) {
  std::byte* const ring = memory_->data() + kPageBytes;
  const size_t at = end_ % kRingBytes, to_end = kRingBytes - at, skipped = bytes <= to_end ? 0 : to_end;
  const auto fits = [&] { return skipped + bytes <= kRingBytes - (end_ - begin_); };
  if (!fits()) drop_released();
  if (!fits()) return nullptr;
  if (skipped == 0) return ring + at;
  const RecordHead skip{0, 0};
  std::memcpy(ring + at, &skip, sizeof skip);
  end_ += skipped;
  return ring;
}

void JournalWriter::drop_released() {
  const std::byte* const ring = memory_->data() + kPageBytes;
  while (begin_ < end_) {
    const size_t at = begin_ % kRingBytes;
    const RecordHead head = head_at(ring + at);
    if (head.number > released_) break;
    begin_ += head.number == 0 ? kRingBytes - at : record_bytes(head.bytes);
  }
  page().begin.store(begin_, std::memory_order_relaxed);
  base::sequence_fence();  // before the records are overwritten: see copy_ring()
}

// ---- the back-up

base::Result<std::shared_ptr<JournalReader>> JournalReader::make(base::Peer server, std::shared_ptr<base::SharedMemory> journal) {
  const auto& page = *reinterpret_cast<const JournalPage*>(journal->data());
  if (journal->bytes() != kPageBytes + kRingBytes || page.magic.load() != JournalPage::kMagic)
    return base::error(MV_EPROTOCOL, "shared memory of {} bytes is not a journal", journal->bytes());
  auto gate = base::SharedMemory::make("polyverso-gate", kPageBytes);
  if (!gate.ok()) return gate.status();
  auto& own = *reinterpret_cast<GatePage*>(gate.value()->data());
  own.id.store(page.id.load());
  own.magic.store(GatePage::kMagic);
  return std::shared_ptr<JournalReader>(new JournalReader(server, own.id.load(), std::move(journal), std::move(gate).value()));
}

void JournalReader::close_gate() {
  reinterpret_cast<GatePage*>(gate_->data())->is_closed.store(1, std::memory_order_release);
  base::full_fence();
}

/// Copies what is in the ring. If the server still runs, it may overwrite old records meanwhile, so the copy is valid from the position on that it
/// publishes before that: a sequence lock. Empty if the positions make no sense.
std::span<const std::byte> JournalReader::copy_ring(uint64_t* begin) {
  const auto& page = *reinterpret_cast<const JournalPage*>(journal_->data());
  const uint64_t from = page.begin.load(std::memory_order_acquire), to = page.end.load(std::memory_order_acquire);
  *begin = from;
  if (from >= to || to - from > kRingBytes || from % kRecordUnit != 0 || to % kRecordUnit != 0) return {};
  copy_.resize(to - from);
  const size_t at = from % kRingBytes, first = std::min<size_t>(copy_.size(), kRingBytes - at);
  {
    [[maybe_unused]] const base::RacyReads racy;
    const std::byte* const ring = journal_->data() + kPageBytes;
    std::memcpy(copy_.data(), ring + at, first);
    std::memcpy(copy_.data() + first, ring, copy_.size() - first);
  }
  base::sequence_fence();
  const uint64_t valid = page.begin.load(std::memory_order_relaxed);
  if (valid < from || valid > to || valid % kRecordUnit != 0) return {};
  *begin = valid;
  return std::span<const std::byte>(copy_).subspan(valid - from);
}

std::vector<JournalReader::Record> JournalReader::close(uint64_t after) {
  close_gate();
  std::vector<Record> records;
  uint64_t position = 0;
  auto rest = copy_ring(&position);
  while (rest.size() >= sizeof(RecordHead)) {
    const RecordHead head = head_at(rest.data());
    const size_t to_end = kRingBytes - position % kRingBytes;
    const size_t bytes = head.number == 0 ? to_end : head.bytes <= kMostBytes ? record_bytes(head.bytes) : SIZE_MAX;
    if (bytes > std::min(rest.size(), to_end)) break;
    if (head.number > after) {
      const auto frame = rest.subspan(sizeof head, head.bytes);
      const auto prefix = frame.size() >= wire::kPrefixBytes ? wire::read_prefix(frame) : base::error(MV_EPROTOCOL, "");
      if (!prefix.ok()) break;
      const size_t payload_at = wire::kPrefixBytes + wire::padded(prefix.value().header_bytes);
      if (payload_at + prefix.value().payload_bytes > frame.size()) break;
      const auto message = wire::read_header(frame.subspan(wire::kPrefixBytes, prefix.value().header_bytes));
      if (!message.ok()) break;
      records.push_back({head.number, message.value(), frame.subspan(payload_at, prefix.value().payload_bytes)});
    }
    rest = rest.subspan(bytes);
    position += bytes;
  }
  return records;
}

}  // namespace mv::replica
