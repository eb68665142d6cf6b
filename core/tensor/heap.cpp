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

namespace mv::tensor {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kArenaBytes = size_t{4} << 20;
/// Beyond it a block has its own segment.
constexpr size_t kLargestCarved = kArenaBytes / 4;
/// How much of large segments is kept for later ones.
constexpr size_t kKeptBytes = size_t{128} << 20;
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

/// Where no descriptor is left for shared memory.
class PrivateBlock : public Block {
 public:
  explicit PrivateBlock(size_t bytes)
      : Block(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})), bytes, Kind::kPrivate) {}
  ~PrivateBlock() override { ::operator delete (data(), std::align_val_t{kAlignment}); }
};

}  // namespace

Block::Block(std::byte* data, size_t bytes, Kind kind)
    : data_(data), bytes_(bytes), kind_(kind), made_at_(base::SharedMemory::forks()), number_(next_number()) {}

/// What is free, under one lock. Ranges of an arena that touch are one range.
class Heap::Store : public std::enable_shared_from_this<Heap::Store> {
 public:
  base::Result<std::shared_ptr<Block>> carve(size_t bytes);
  base::Result<std::shared_ptr<Block>> whole(size_t bytes, bool* is_fresh);
  void give_back_range(std::byte* at, size_t bytes, bool reuse);
  void give_back_segment(Segment segment, bool reuse);
  Use use() const;
  std::mutex& mutex() { return mutex_; }

 private:
  class Carved;
  class Whole;
  struct Arena {
    Segment segment;
    size_t given = 0;   ///< bytes of blocks that are out
    size_t wasted = 0;  ///< bytes that came back and are not used again
  };

  void drop_inherited();
  Arena& arena_of(std::byte* at) { return std::prev(arenas_.upper_bound(at))->second; }
  void join_free(std::byte* begin, std::byte* at, size_t bytes);
  void add_free(std::byte* at, size_t bytes);
  void remove_free(std::map<std::byte*, size_t>::iterator range);
  void drop_unused_arena(std::byte* begin);

  mutable std::mutex mutex_;
  std::map<std::byte*, Arena> arenas_;
  std::map<std::byte*, size_t> free_;  // by address
  std::set<std::pair<size_t, std::byte*>> free_by_size_;
  std::vector<Segment> kept_;  // large ones, the latest last
  size_t kept_bytes_ = 0;
  size_t large_ = 0, large_bytes_ = 0;  // segments that are out
  size_t carved_bytes_ = 0;
  uint32_t used_at_ = base::SharedMemory::forks();
};

class Heap::Store::Carved : public Block {
 public:
  Carved(std::shared_ptr<Store> store, std::byte* at, size_t bytes)
      : Block(at, bytes, Kind::kShared), store_(std::move(store)) {}
  ~Carved() override { store_->give_back_range(data(), bytes(), made_at() == base::SharedMemory::forks()); }

 private:
  const std::shared_ptr<Store> store_;
};

class Heap::Store::Whole : public Block {
 public:
  Whole(std::shared_ptr<Store> store, Segment segment)
      : Block(segment->data(), segment->bytes(), Kind::kShared), store_(std::move(store)), segment_(std::move(segment)) {}
  ~Whole() override { store_->give_back_segment(std::move(segment_), made_at() == base::SharedMemory::forks()); }

 private:
  const std::shared_ptr<Store> store_;
  Segment segment_;
};

/// In a forked child: what is free in the parent's memory can't be shown to other processes.
void Heap::Store::drop_inherited() {
  if (base::SharedMemory::is_ours(used_at_)) return;
  used_at_ = base::SharedMemory::forks();
  free_.clear();
  free_by_size_.clear();
  kept_.clear();
  kept_bytes_ = 0;
  std::erase_if(arenas_, [](const auto& arena) { return arena.second.given == 0; });
}

void Heap::Store::add_free(std::byte* at, size_t bytes) {
  free_.emplace(at, bytes);
  free_by_size_.emplace(bytes, at);
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
    arenas_.emplace(begin, Arena{std::move(arena).value()});
    add_free(begin, kArenaBytes);
    found = free_by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, at] = *found;
  remove_free(free_.find(at));
  if (size > bytes) add_free(at + bytes, size - bytes);
  carved_bytes_ += bytes;
  arena_of(at).given += bytes;
  lock.unlock();  // where the block can't be made, its destructor is not run
  try {
    return std::shared_ptr<Block>(std::make_shared<Carved>(shared_from_this(), at, bytes));
  } catch (...) {
    give_back_range(at, bytes, true);
    throw;
  }
}

void Heap::Store::give_back_range(std::byte* at, size_t bytes, bool reuse) {
  std::lock_guard lock(mutex_);
  carved_bytes_ -= bytes;
  const auto found = std::prev(arenas_.upper_bound(at));
  std::byte* const begin = found->first;
  Arena& arena = found->second;
  arena.given -= bytes;
  if (reuse)
    join_free(begin, at, bytes);
  else
    arena.wasted += bytes;
  if (arena.given > 0) return;
  if (arena.wasted == 0) return drop_unused_arena(begin);
  while (true) {
    const auto range = free_.lower_bound(begin);
    if (range == free_.end() || range->first >= begin + kArenaBytes) break;
    remove_free(range);
  }
  arenas_.erase(found);
}

/// Ranges that touch become one, within their arena.
void Heap::Store::join_free(std::byte* begin, std::byte* at, size_t bytes) {
  std::byte* const end = begin + kArenaBytes;
  if (const auto next = free_.find(at + bytes); next != free_.end() && next->first < end) {
    bytes += next->second;
    remove_free(next);
  }
  if (auto before = free_.lower_bound(at); before != free_.begin()) {
    --before;
    if (before->first >= begin && before->first + before->second == at) {
      at = before->first;
      bytes += before->second;
      remove_free(before);
    }
  }
  add_free(at, bytes);
}

/// One unused arena stays, for whoever makes and frees a tensor in turns.
void Heap::Store::drop_unused_arena(std::byte* begin) {
  const auto unused =
      std::count_if(free_.begin(), free_.end(), [](const auto& range) { return range.second == kArenaBytes; });
  if (unused < 2) return;
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
    ++large_;
    large_bytes_ += segment->bytes();
  }
  return std::shared_ptr<Block>(std::make_shared<Whole>(shared_from_this(), std::move(segment)));
}

void Heap::Store::give_back_segment(Segment segment, bool reuse) {
  std::vector<Segment> dropped;  // unmapped without the lock
  std::lock_guard lock(mutex_);
  --large_;
  large_bytes_ -= segment->bytes();
  if (!reuse || segment->bytes() > kKeptBytes) {
    dropped.push_back(std::move(segment));
    return;
  }
  kept_bytes_ += segment->bytes();
  kept_.push_back(std::move(segment));
  while (kept_bytes_ > kKeptBytes) {
    kept_bytes_ -= kept_.front()->bytes();
    dropped.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
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
    base::log_warn("tensor: {}; private memory stands in for it", block.status().text());
    block = std::shared_ptr<Block>(std::make_shared<PrivateBlock>(rounded));
  }
  if (content == Content::kZeros && !is_fresh) std::memset(block.value()->data(), 0, bytes);
  return block;
}

std::shared_ptr<Block> Heap::lend(std::byte* data, size_t bytes) {
  return std::make_shared<Block>(data, bytes, Block::Kind::kLent);
}

void Heap::before_fork() noexcept { store_->mutex().lock(); }
void Heap::after_fork() noexcept { store_->mutex().unlock(); }

Heap::Use Heap::use() const { return store_->use(); }

}  // namespace mv::tensor
