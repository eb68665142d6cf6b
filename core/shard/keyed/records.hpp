#pragma once
// The rows of one segment of a keyed shard: ids, values, states, and who was used last.
//
// A record: id (8 bytes), with a limit of rows two links of 4 bytes, values, states; rounded up to 4 bytes, or to 8
// where an element has 8. With the index's 5 to 11 bytes (7.5 on average), an entry takes 15.5 bytes and its values and
// states; 23.5 with a limit. What is erased is used again, but not given back before the table is destroyed.

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_set>

#include "base/mix.hpp"
#include "shard/keyed/index.hpp"
#include "shard/keyed/slab.hpp"
#include "shard/shard.hpp"

namespace mv::shard {

/// Where things are in a record.
struct RecordLayout {
  RecordLayout(const Spec& spec, size_t states);
  bool is_linked;  ///< has links, to find the least recently used one
  size_t values_at, row_bytes, states, stride;
  size_t state_at(size_t index) const { return values_at + (1 + index) * row_bytes; }
  bool operator==(const RecordLayout&) const = default;
};

/// Its owner locks.
class Records {
 public:
  /// As Index and Slab want it.
  Records(const RecordLayout& layout, unsigned skipped_bits, std::shared_ptr<IndexPool> indexes, size_t user,
          std::shared_ptr<ChunkPool> pool)
      : layout_(layout), index_(skipped_bits, std::move(indexes), user), slab_(std::move(pool), layout.stride) {}

  static constexpr uint32_t kNone = Index::kNone;
  const RecordLayout& layout() const { return layout_; }
  const Index& index() const { return index_; }
  size_t size() const { return index_.size(); }

  std::byte* at(uint32_t slot) const { return slab_.at(slot); }
  int64_t id(uint32_t slot) const {
    int64_t id;
    std::memcpy(&id, at(slot), sizeof(id));
    return id;
  }
  std::byte* values(uint32_t slot) const { return at(slot) + layout_.values_at; }
  std::byte* state(uint32_t slot, size_t index) const { return at(slot) + layout_.state_at(index); }

  /// kNone if there is no such id. Hashes are base::mix(id).
  uint32_t find(int64_t id, uint64_t hash) const;
  /// Brings what find() and its caller will look at closer: first the one for some ids, then, a little later, the
  /// other. (Always inline: GCC takes a function that only fetches for one without effect, and drops its calls.)
  [[gnu::always_inline]] void prefetch_index(uint64_t hash) const { index_.prefetch(hash); }
  [[gnu::always_inline]] void prefetch_record(uint64_t hash) const {
    const uint32_t slot = index_.likely(hash);
    if (slot == kNone) return;
    const std::byte* record = at(slot);
    __builtin_prefetch(record, 1);
    __builtin_prefetch(record + layout_.stride - 1, 1);
  }
  /// A record for an id that has none: its values are undefined, its states zeros. Throws std::bad_alloc.
  uint32_t insert(int64_t id, uint64_t hash);
  /// False if there is no such id.
  bool erase(int64_t id, uint64_t hash);

  // Only where layout().is_linked.
  void touch(uint32_t slot);
  uint32_t least_recently_used() const { return oldest_; }

  /// Records have other states from now on, zeros; ids, values and slots stay.
  void relayout(const RecordLayout& layout, std::shared_ptr<ChunkPool> pool);
  void clear_states();

  /// The worker's backup of a row: see Block::backup. Zeros if it got none since the record came to be; null where it
  /// never got any and none is `wanted`.
  std::byte* backup(Worker worker, uint32_t slot, bool wanted);
  /// The worker got a row that has no record. Of more than `most` such rows (0: no limit) some are forgotten.
  void note_absent(Worker worker, int64_t id, size_t most);
  /// give(backup) for all workers who got the row before it had this record.
  template <typename Give>
  void give_backups_of_absent(int64_t id, uint32_t slot, const Give& give) {
    for (auto& [worker, kept] : backups_)
      if (kept.absent.erase(id) > 0) give(backup(worker, slot, true));
  }
  void drop_backups() { backups_.clear(); }

  size_t bytes() const { return index_.bytes() + slab_.bytes() + backup_bytes(); }
  size_t backup_bytes() const;

 private:
  struct Links {
    uint32_t newer, older;
  };
  Links links(uint32_t slot) const;
  void set_links(uint32_t slot, Links links);
  void unlink(uint32_t slot);
  void link_newest(uint32_t slot);

  RecordLayout layout_;
  Index index_;
  Slab slab_;
  uint32_t used_ = 0;      ///< slots that were ever used
  uint32_t free_ = kNone;  ///< erased ones: each holds the next one's number
  uint32_t newest_ = kNone, oldest_ = kNone;
  std::shared_ptr<ChunkPool> backup_pool_;
  /// What one worker last got.
  struct Backups {
    Slab slab;
    std::unordered_set<int64_t> absent;  ///< ids that had no record then
  };
  Backups& backups_of(Worker worker);
  std::map<Worker, Backups> backups_;
};

}  // namespace mv::shard
