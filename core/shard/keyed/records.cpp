#include "base/mix.hpp"
#include "shard/keyed/records.hpp"

namespace mv::shard {

namespace {
constexpr size_t kLinksAt = sizeof(int64_t);

constexpr size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

RecordLayout::RecordLayout(const Spec& spec, size_t states)
    : is_linked(spec.capacity > 0),
      values_at(kLinksAt + (is_linked ? 8 : 0)),
      row_bytes(spec.cols * tensor::dtype_bytes(tensor::storage_dtype(spec.dtype))),
      states(states),
      stride(rounded_up(state_at(states), spec.element_bytes() == 8 ? 8 : 4)) {}

// ------------------------------------------------------------ ids

uint32_t Records::find(int64_t id, uint64_t hash) const {
  const size_t position = index_.find(hash, [&](uint32_t slot) { return this->id(slot) == id; });
  return position < index_.capacity() ? index_.slot(position) : kNone;
}

void Records::reserve(size_t more) {
  if (const size_t slots = index_.size() + more; slots > 0) slab_.reach(static_cast<uint32_t>(slots - 1));  // erased records are used again
  index_.reserve(more, [&](uint32_t slot) { return base::mix(static_cast<uint64_t>(id(slot))); });
}

uint32_t Records::insert(int64_t id, uint64_t hash) {
  const uint32_t slot = free_ != kNone ? free_ : used_;
  slab_.reach(slot);
  const uint32_t next_free = free_ != kNone ? [&] {
    uint32_t next;
    std::memcpy(&next, at(slot), sizeof(next));
    return next;
  }() : kNone;
  index_.insert(hash, slot, [&](uint32_t other) { return base::mix(static_cast<uint64_t>(this->id(other))); });
  if (slot == used_) ++used_;
  free_ = next_free;
  std::memcpy(at(slot), &id, sizeof(id));
  std::memset(at(slot) + layout_.state_at(0), 0, layout_.states * layout_.row_bytes);
  for (auto& [worker, kept] : backups_) {
    if (kept.slab.has(slot)) std::memset(kept.slab.at(slot), 0, layout_.row_bytes);
  }
  if (layout_.is_linked) link_newest(slot);
  return slot;
}

bool Records::erase(int64_t id, uint64_t hash) {
  const size_t position = index_.find(hash, [&](uint32_t slot) { return this->id(slot) == id; });
  if (position == index_.capacity()) return false;
  const uint32_t slot = index_.slot(position);
  index_.erase(position);
  if (layout_.is_linked) unlink(slot);
  std::memcpy(at(slot), &free_, sizeof(free_));
  free_ = slot;
  return true;
}

// ------------------------------------------------------------ the order of use

Records::Links Records::links(uint32_t slot) const {
  Links links;
  std::memcpy(&links, at(slot) + kLinksAt, sizeof(links));
  return links;
}

void Records::set_links(uint32_t slot, Links links) { std::memcpy(at(slot) + kLinksAt, &links, sizeof(links)); }

void Records::unlink(uint32_t slot) {
  const Links own = links(slot);
  if (own.newer != kNone)
    set_links(own.newer, {links(own.newer).newer, own.older});
  else
    newest_ = own.older;
  if (own.older != kNone)
    set_links(own.older, {own.newer, links(own.older).older});
  else
    oldest_ = own.newer;
}

void Records::link_newest(uint32_t slot) {
  set_links(slot, {kNone, newest_});
  if (newest_ != kNone)
    set_links(newest_, {slot, links(newest_).older});
  else
    oldest_ = slot;
  newest_ = slot;
}

void Records::touch(uint32_t slot) {
  if (slot == newest_) return;
  unlink(slot);
  link_newest(slot);
}

// ------------------------------------------------------------ states and backups

void Records::relayout(const RecordLayout& layout, std::shared_ptr<ChunkPool> pool) {
  Slab slab(std::move(pool), layout.stride);
  if (used_ > 0) slab.reach(used_ - 1);
  for (uint32_t slot = 0; slot < used_; ++slot) std::memcpy(slab.at(slot), at(slot), layout.state_at(0));
  slab_ = std::move(slab);
  layout_ = layout;
}

void Records::clear_states() {
  for (uint32_t slot = 0; slot < used_; ++slot)
    std::memset(at(slot) + layout_.state_at(0), 0, layout_.states * layout_.row_bytes);
}

Records::Backups& Records::backups_of(Worker worker) {
  if (backup_pool_ == nullptr) backup_pool_ = Slab::make_pool(layout_.row_bytes);
  return backups_.try_emplace(worker, Backups{Slab(backup_pool_, layout_.row_bytes), {}}).first->second;
}

std::byte* Records::backup(Worker worker, uint32_t slot, bool wanted) {
  const auto found = backups_.find(worker);
  if (found == backups_.end() && !wanted) return nullptr;
  Slab& slab = found != backups_.end() ? found->second.slab : backups_of(worker).slab;
  if (wanted) slab.reach(slot);
  return slab.has(slot) ? slab.at(slot) : nullptr;
}

size_t Records::backup_bytes() const {
  size_t bytes = 0;
  for (const auto& [worker, kept] : backups_) bytes += kept.slab.bytes() + kept.absent.bytes();
  return bytes;
}

bool AbsentRows::is_known(const Noted& noted) const {
  const auto found = numbers_.find(noted.id);
  return found != numbers_.end() && found->second == noted.number;
}

void AbsentRows::note(int64_t id, size_t most) {
  if (numbers_.contains(id)) return;
  if (most > 0) order_.push_back({next_, id});
  numbers_.emplace(id, next_);
  ++next_;
  if (most == 0 || numbers_.size() <= most) return;
  while (!is_known(order_.front())) order_.pop_front();
  numbers_.erase(order_.front().id);
  order_.pop_front();
}

bool AbsentRows::erase(int64_t id) {
  if (numbers_.erase(id) == 0) return false;
  constexpr size_t kFew = 16;
  if (order_.size() > kFew + 2 * numbers_.size()) std::erase_if(order_, [this](const Noted& noted) { return !is_known(noted); });
  return true;
}

std::vector<int64_t> AbsentRows::ids() const {
  std::vector<int64_t> ids;
  ids.reserve(numbers_.size());
  if (order_.empty())
    for (const auto& [id, number] : numbers_) ids.push_back(id);
  for (const Noted& noted : order_)
    if (is_known(noted)) ids.push_back(noted.id);
  return ids;
}

size_t AbsentRows::bytes() const {
  constexpr size_t kNodeBytes = 2 * sizeof(void*) + 2 * sizeof(int64_t);
  return numbers_.size() * kNodeBytes + numbers_.bucket_count() * sizeof(void*) + order_.size() * sizeof(Noted);
}

}  // namespace mv::shard
