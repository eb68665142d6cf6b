#include "tensor/heap.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/undo.hpp"

namespace mv::tensor {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kArenaBytes = size_t{4} << 20;
/// A larger block has its own segment.
constexpr size_t kLargestCarved = kArenaBytes / 4;
/// Limits of unused memory that is kept for reuse, in bytes of large segments and in arenas: a training loop frees and
/// allocates the same tensors in every step.
constexpr size_t kKeptBytes = size_t{128} << 20;
constexpr ptrdiff_t kKeptArenas = (size_t{64} << 20) / kArenaBytes;
/// A kept segment serves a request that leaves at most this part of it unused: a quarter.
constexpr size_t kSpareDivisor = 4;

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

using Segment = std::shared_ptr<base::SharedMemory>;

base::Result<Segment> make_segment(size_t bytes) {
  auto made = base::SharedMemory::make("polyverso-tensors", bytes);
  if (made.ok()) base::SharedMemory::enlist(made.value());
  return made;
}

/// The fallback if no descriptor is left for shared memory.
class PrivateBlock : public Block {
 public:
  explicit PrivateBlock(size_t bytes)
      : Block(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})), bytes, MemoryKind::kPrivate) {}
  ~PrivateBlock() override { ::operator delete (data(), std::align_val_t{kAlignment}); }
};

}  // namespace

Block::Block(std::byte* data, size_t bytes, MemoryKind kind, Device* device)
    : data_(data), bytes_(bytes), kind_(kind), device_(device), made_at_(base::SharedMemory::forks()), number_(next_number()) {}

/// The free memory, under one lock. Adjacent free ranges of an arena are merged.
class Heap::Store : public std::enable_shared_from_this<Heap::Store> {
 public:
  base::Result<std::shared_ptr<Block>> carve(size_t bytes);
  base::Result<std::shared_ptr<Block>> whole(size_t bytes, bool* is_fresh);
  void give_back_range(std::byte* at, size_t bytes, bool reuse) noexcept;
  void give_back_segment(Segment segment, bool reuse) noexcept;
  Use use() const;
  std::mutex& mutex() { return mutex_; }

 private:
  class Carved;
  class Whole;
  struct Arena {
    Segment segment;
    size_t given = 0;   ///< bytes of blocks in use
    size_t wasted = 0;  ///< freed bytes that are not reused
  };

  void drop_inherited();
  Arena& arena_of(std::byte* at) { return std::prev(arenas_.upper_bound(at))->second; }
  bool join_free(std::byte* begin, std::byte* at, size_t bytes) noexcept;
  bool add_free(std::byte* at, size_t bytes) noexcept;
  void change_free(std::map<std::byte*, size_t>::iterator range, std::byte* at, size_t bytes) noexcept;
  void remove_free(std::map<std::byte*, size_t>::iterator range);
  void drop_unused_arena(std::byte* begin);

  mutable std::mutex mutex_;
  std::map<std::byte*, Arena> arenas_;
  std::map<std::byte*, size_t> free_;  // by address
  std::set<std::pair<size_t, std::byte*>> free_by_size_;
  std::vector<Segment> kept_;  // unused large ones, the latest last
  size_t kept_bytes_ = 0;
  size_t large_ = 0, large_bytes_ = 0;  // large segments in use
  size_t carved_bytes_ = 0;
  uint32_t used_at_ = base::SharedMemory::forks();
};

class Heap::Store::Carved : public Block {
 public:
  Carved(std::shared_ptr<Store> store, std::byte* at, size_t bytes)
      : Block(at, bytes, MemoryKind::kShared), store_(std::move(store)) {}
  ~Carved() override { store_->give_back_range(data(), bytes(), made_at() == base::SharedMemory::forks()); }

 private:
  const std::shared_ptr<Store> store_;
};

class Heap::Store::Whole : public Block {
 public:
  Whole(std::shared_ptr<Store> store, Segment segment)
      : Block(segment->data(), segment->bytes(), MemoryKind::kShared), store_(std::move(store)), segment_(std::move(segment)) {}
  ~Whole() override { store_->give_back_segment(std::move(segment_), made_at() == base::SharedMemory::forks()); }

 private:
  const std::shared_ptr<Store> store_;
  Segment segment_;
};

/// In a forked child: free memory of the parent cannot be shared with other processes.
void Heap::Store::drop_inherited() {
  if (base::SharedMemory::is_ours(used_at_)) return;
  used_at_ = base::SharedMemory::forks();
  free_.clear();
  free_by_size_.clear();
  kept_.clear();
  kept_bytes_ = 0;
  std::erase_if(arenas_, [](const auto& arena) { return arena.second.given == 0; });
}

/// False if memory runs out.
bool Heap::Store::add_free(std::byte* at, size_t bytes) noexcept {
  try {
    const auto range = free_.emplace(at, bytes).first;
    base::Undo forget([&] { free_.erase(range); });
    free_by_size_.emplace(bytes, at);
    forget.keep();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// Moves or resizes a free range within its arena, without allocating.
void Heap::Store::change_free(std::map<std::byte*, size_t>::iterator range, std::byte* at, size_t bytes) noexcept {
  auto by_size = free_by_size_.extract({range->second, range->first});
  auto by_address = free_.extract(range);
  by_size.value() = {bytes, at};
  by_address.key() = at;
  by_address.mapped() = bytes;
  free_by_size_.insert(std::move(by_size));
  free_.insert(std::move(by_address));
}

void Heap::Store::remove_free(std::map<std::byte*, size_t>::iterator range) {
  free_by_size_.erase({range->second, range->first});
  free_.erase(range);
}

base::Result<std::shared_ptr<Block>> Heap::Store::carve(size_t bytes) {
  std::unique_lock lock(mutex_);
  drop_inherited();
  auto found = free_by_size_.lower_bound({bytes, nullptr});
  if (found == free_by_size_.end()) {
    auto arena = make_segment(kArenaBytes);
    if (!arena.ok()) return arena.status();
    std::byte* begin = arena.value()->data();
    const auto made = arenas_.emplace(begin, Arena{std::move(arena).value()}).first;
    if (!add_free(begin, kArenaBytes)) {
      arenas_.erase(made);
      throw std::bad_alloc();
    }
    found = free_by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, at] = *found;
  const auto range = free_.find(at);
  size > bytes ? change_free(range, at + bytes, size - bytes) : remove_free(range);
  carved_bytes_ += bytes;
  arena_of(at).given += bytes;
  lock.unlock();  // if the block can't be made, its destructor does not run
  try {
    return std::shared_ptr<Block>(std::make_shared<Carved>(shared_from_this(), at, bytes));
  } catch (...) {
    give_back_range(at, bytes, true);
    throw;
  }
}

void Heap::Store::give_back_range(std::byte* at, size_t bytes, bool reuse) noexcept {
  std::lock_guard lock(mutex_);
  carved_bytes_ -= bytes;
  const auto found = std::prev(arenas_.upper_bound(at));
  std::byte* const begin = found->first;
  Arena& arena = found->second;
  arena.given -= bytes;
  if (!reuse || !join_free(begin, at, bytes)) arena.wasted += bytes;
  if (arena.given > 0) return;
  if (arena.wasted == 0) return drop_unused_arena(begin);
  while (true) {
    const auto range = free_.lower_bound(begin);
    if (range == free_.end() || range->first >= begin + kArenaBytes) break;
    remove_free(range);
  }
  arenas_.erase(found);
}

/// Frees a range and merges it with adjacent ones of its arena. False if no range is adjacent and memory runs out.
bool Heap::Store::join_free(std::byte* begin, std::byte* at, size_t bytes) noexcept {
  std::byte* const end = begin + kArenaBytes;
  auto next = free_.find(at + bytes);
  if (next != free_.end() && next->first >= end) next = free_.end();
  auto before = free_.lower_bound(at);
  before = before != free_.begin() ? std::prev(before) : free_.end();
  if (before != free_.end() && (before->first < begin || before->first + before->second != at)) before = free_.end();
  if (before == free_.end() && next == free_.end()) return add_free(at, bytes);
  const size_t behind = next != free_.end() ? next->second : 0;
  if (before == free_.end()) {
    change_free(next, at, bytes + behind);
    return true;
  }
  if (next != free_.end()) remove_free(next);
  change_free(before, before->first, before->second + bytes + behind);
  return true;
}

/// Keeps some unused arenas, for callers that make and free tensors in turns.
void Heap::Store::drop_unused_arena(std::byte* begin) {
  const auto unused =
      std::count_if(free_.begin(), free_.end(), [](const auto& range) { return range.second == kArenaBytes; });
  if (unused <= kKeptArenas) return;
  remove_free(free_.find(begin));
  arenas_.erase(begin);
}

base::Result<std::shared_ptr<Block>> Heap::Store::whole(size_t bytes, bool* is_fresh) {
  Segment segment;
  {
    std::lock_guard lock(mutex_);
    drop_inherited();
    auto best = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      const size_t size = (*it)->bytes();
      const bool fits = size >= bytes && size - bytes <= size / kSpareDivisor;
      if (fits && (best == kept_.end() || size < (*best)->bytes())) best = it;
    }
    if (best != kept_.end()) {
      segment = std::move(*best);
      kept_.erase(best);
      kept_bytes_ -= segment->bytes();
      ++large_;
      large_bytes_ += segment->bytes();
    }
  }
  *is_fresh = segment == nullptr;
  if (*is_fresh) {
    auto made = make_segment(bytes);
    if (!made.ok()) return made.status();
    segment = std::move(made).value();
    std::lock_guard lock(mutex_);
    kept_.reserve(kept_.size() + large_ + 1);  // all can then be given back without allocating
    ++large_;
    large_bytes_ += segment->bytes();
  }
  try {
    return std::shared_ptr<Block>(std::make_shared<Whole>(shared_from_this(), std::move(segment)));
  } catch (...) {  // if the block can't be made, its destructor does not run
    give_back_segment(std::move(segment), true);
    throw;
  }
}

void Heap::Store::give_back_segment(Segment segment, bool reuse) noexcept {
  std::unique_lock lock(mutex_);
  --large_;
  large_bytes_ -= segment->bytes();
  if (reuse && segment->bytes() <= kKeptBytes) {
    kept_bytes_ += segment->bytes();
    kept_.push_back(std::move(segment));
  }
  while (kept_bytes_ > kKeptBytes) {
    Segment dropped = std::move(kept_.front());
    kept_bytes_ -= dropped->bytes();
    kept_.erase(kept_.begin());
    lock.unlock();
    dropped.reset();  // unmapped without the lock
    lock.lock();
  }
}

Heap::Use Heap::Store::use() const {
  std::lock_guard lock(mutex_);
  return {arenas_.size() + kept_.size() + large_, arenas_.size() * kArenaBytes + kept_bytes_ + large_bytes_,
          carved_bytes_ + large_bytes_};
}

Heap::Heap() : store_(std::make_shared<Store>()) {}

base::Result<std::shared_ptr<Block>> Heap::allocate(size_t bytes, Content content) {
  constexpr size_t kPage = 4096;
  const size_t rounded = round_up(std::max<size_t>(bytes, 1), bytes > kLargestCarved ? kPage : kAlignment);
  bool is_fresh = false;
  auto block = rounded > kLargestCarved ? store_->whole(rounded, &is_fresh) : store_->carve(rounded);
  if (!block.ok()) {
    if (block.status().code() != MV_ESYSTEM) return block.status();
    base::log_warn("tensor: {}; using private memory instead", block.status().text());
    block = std::shared_ptr<Block>(std::make_shared<PrivateBlock>(rounded));
  }
  if (content == Content::kZeros && !is_fresh) std::memset(block.value()->data(), 0, bytes);
  return block;
}

std::shared_ptr<Block> Heap::lend(std::byte* data, size_t bytes) {
  return std::make_shared<Block>(data, bytes, Block::MemoryKind::kLent);
}

void Heap::before_fork() noexcept { store_->mutex().lock(); }
void Heap::after_fork() noexcept { store_->mutex().unlock(); }

Heap::Use Heap::use() const { return store_->use(); }

}  // namespace mv::tensor
