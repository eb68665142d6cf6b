#include "shard/keyed/snapshot.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace mv::shard {

namespace {
/// The approximate amount that next() copies under a partition's lock.
constexpr size_t kPieceBytes = kStripeBytes / 4;
constexpr size_t kAhead = 16;
}  // namespace

void KeyedShard::before_change(Partition& part) {
  if (part.unread == nullptr) return;
  part.unread->set_aside(part);
  part.unread = nullptr;
}

base::Result<std::unique_ptr<Snapshot>> KeyedShard::snapshot() {
  std::lock_guard lock(mutex_);
  if (snapshot_taken_) return base::error(MV_ESTATE, "table \"{}\" is already being saved", spec_.name);
  std::unique_ptr<Snapshot> snapshot = std::make_unique<KeyedSnapshot>(shared_from_this(), model_->updater->states());
  snapshot_taken_ = true;  // not before: without memory for it there is none
  return snapshot;
}

KeyedSnapshot::KeyedSnapshot(std::shared_ptr<KeyedShard> shard, size_t states)
    : shard_(std::move(shard)), states_(states), progress_(shard_->parts_.size()) {
  for (const auto& part : shard_->parts_) {
    std::lock_guard lock(part->mutex);
    part->unread = this;
    rows_ += part->records.size();
  }
}

KeyedSnapshot::~KeyedSnapshot() {
  for (const auto& part : shard_->parts_) {
    std::lock_guard lock(part->mutex);
    part->unread = nullptr;
  }
  std::lock_guard lock(shard_->mutex_);
  shard_->snapshot_taken_ = false;
}

KeyedSnapshot::Copied KeyedSnapshot::copy(const KeyedShard::Partition& part, size_t most) {
  const Records& records = part.records;
  const Index& index = records.index();
  const size_t row_bytes = records.layout().row_bytes;
  Progress& progress = progress_[part.index];
  Copied copied;
  copied.states.resize(states_);
  const size_t expected = std::min(most, records.size());
  copied.ids.reserve(expected);
  copied.values.reserve(expected * row_bytes);
  for (auto& state : copied.states) state.reserve(expected * row_bytes);
  const auto append = [row_bytes](std::vector<std::byte>& to, const std::byte* from) {
    to.insert(to.end(), from, from + row_bytes);
  };
  const auto append_record = [&](uint32_t slot) {
    copied.ids.push_back(records.id(slot));
    append(copied.values, records.values(slot));
    for (size_t i = 0; i < states_; ++i) append(copied.states[i], records.state(slot, i));
  };
  if (records.layout().is_linked) {
    if (!std::exchange(progress.begun, true)) progress.slot = records.least_recently_used();
    for (; progress.slot != Records::kNone && copied.ids.size() < most; progress.slot = records.used_after(progress.slot))
      append_record(progress.slot);
    progress.done = progress.slot == Records::kNone;
    return copied;
  }
  size_t& position = progress.position;
  for (; position < index.capacity() && copied.ids.size() < most; ++position) {
    if (position + kAhead < index.capacity()) {
      const uint32_t ahead = index.slot(position + kAhead);
      if (ahead != Records::kNone) __builtin_prefetch(records.at(ahead));
    }
    if (const uint32_t slot = index.slot(position); slot != Records::kNone) append_record(slot);
  }
  progress.done = position >= index.capacity();
  return copied;
}

void KeyedSnapshot::set_aside(const KeyedShard::Partition& part) {
  progress_[part.index].aside = copy(part, std::numeric_limits<size_t>::max());
}

Rows KeyedSnapshot::next() {
  const size_t row_bytes = shard_->spec().cols * shard_->stored_bytes_;
  const size_t most = std::max<size_t>(1, kPieceBytes / (sizeof(int64_t) + (1 + states_) * row_bytes));
  out_ = {};
  while (part_ < progress_.size() && out_.ids.empty()) {
    KeyedShard::Partition& part = *shard_->parts_[part_];
    std::lock_guard lock(part.mutex);
    if (part.unread == this) {
      out_ = copy(part, most);
      if (!progress_[part_].done) break;
      part.unread = nullptr;
    } else {
      out_ = std::exchange(progress_[part_].aside, {});
    }
    ++part_;
  }
  Rows rows{.first = 0, .count = out_.ids.size(), .ids = std::move(out_.ids), .values = out_.values, .states = {}};
  for (const auto& state : out_.states) rows.states.emplace_back(state);
  return rows;
}

}  // namespace mv::shard
