#include "shard/keyed/snapshot.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/prefetch.hpp"
#include "shard/updater/apply.hpp"

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

void KeyedShard::before_get(Partition& part) {
  if (part.unread != nullptr && part.unread->scope() == Scope::kAll) before_change(part);
}

bool KeyedShard::has_snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_taken_;
}

base::Result<std::unique_ptr<Snapshot>> KeyedShard::snapshot(Scope scope) {
  std::lock_guard lock(mutex_);
  if (snapshot_taken_) return base::error(MV_ESTATE, "table \"{}\" is already being saved", spec_.name);
  std::unique_ptr<Snapshot> snapshot = std::make_unique<KeyedSnapshot>(shared_from_this(), model_->updater->states(), scope);
  snapshot_taken_ = true;  // not before: without memory for it there is none
  return snapshot;
}

KeyedSnapshot::KeyedSnapshot(std::shared_ptr<KeyedShard> shard, size_t states, Scope scope)
    : shard_(std::move(shard)), states_(states), scope_(scope), progress_(shard_->parts_.size()) {
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
    if (scope_ == Scope::kAll)
      records.for_each_worker([&](Worker worker, const auto& backup, const AbsentRows&) {
        const std::byte* const got = backup(slot);
        if (got == nullptr || is_zero({got, row_bytes})) return;
        copied.got[worker].ids.push_back(copied.ids.back());
        append(copied.got[worker].values, got);
      });
  };
  const auto append_absent = [&] {
    if (!progress.done || scope_ != Scope::kAll) return;
    records.for_each_worker([&](Worker worker, const auto&, const AbsentRows& absent) {
      if (auto ids = absent.ids(); !ids.empty()) copied.got[worker].absent = std::move(ids);
    });
  };
  if (records.layout().is_linked) {
    if (!std::exchange(progress.begun, true)) progress.slot = records.least_recently_used();
    for (; progress.slot != Records::kNone && copied.ids.size() < most; progress.slot = records.used_after(progress.slot))
      append_record(progress.slot);
    progress.done = progress.slot == Records::kNone;
    append_absent();
    return copied;
  }
  size_t& position = progress.position;
  for (; position < index.capacity() && copied.ids.size() < most; ++position) {
    if (position + kAhead < index.capacity()) {
      const uint32_t ahead = index.slot(position + kAhead);
      if (ahead != Records::kNone) base::prefetch(records.at(ahead));
    }
    if (const uint32_t slot = index.slot(position); slot != Records::kNone) append_record(slot);
  }
  progress.done = position >= index.capacity();
  append_absent();
  return copied;
}

void KeyedSnapshot::set_aside(const KeyedShard::Partition& part) {
  progress_[part.index].aside = copy(part, std::numeric_limits<size_t>::max());
}

/// About as many rows as make one piece.
size_t KeyedSnapshot::most_rows(const KeyedShard::Partition& part) const {
  const size_t arrays = 1 + states_ + (scope_ == Scope::kAll ? part.records.workers() : 0);
  return std::max<size_t>(1, kPieceBytes / (sizeof(int64_t) + arrays * shard_->spec().cols * shard_->stored_bytes_));
}

/// Copies more of the current partition, or of the next one. False if there is none.
bool KeyedSnapshot::read_more() {
  if (part_ == progress_.size()) return false;
  KeyedShard::Partition& part = *shard_->parts_[part_];
  std::lock_guard lock(part.mutex);
  if (part.unread == this) {
    out_ = copy(part, most_rows(part));
    if (!progress_[part_].done) return true;
    part.unread = nullptr;
  } else {
    out_ = std::exchange(progress_[part_].aside, {});
  }
  ++part_;
  return true;
}

/// The values that one worker got, or ids of rows that were not stored; then the next worker is next.
Rows KeyedSnapshot::next_got() {
  const auto first = out_.got.begin();
  const Worker worker = first->first;
  got_ = std::exchange(first->second, {});
  Rows rows{.first = 0, .count = 0, .ids = std::move(got_.ids), .values = got_.values, .states = {}, .content = Content::kGot, .worker = worker};
  if (!rows.ids.empty()) {
    first->second.absent = std::move(got_.absent);
  } else {
    rows.content = Content::kAbsent;
    rows.ids = std::move(got_.absent);
  }
  rows.count = rows.ids.size();
  if (first->second.absent.empty()) out_.got.erase(first);
  return rows;
}

Rows KeyedSnapshot::next() {
  while (out_.ids.empty() && out_.got.empty())
    if (!read_more()) return {};
  if (out_.ids.empty()) return next_got();
  Rows rows{.first = 0, .count = out_.ids.size(), .ids = std::exchange(out_.ids, {}), .values = out_.values, .states = {}};
  for (const auto& state : out_.states) rows.states.emplace_back(state);
  return rows;
}

}  // namespace mv::shard
