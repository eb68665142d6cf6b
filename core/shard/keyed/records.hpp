#pragma once
// The rows of one partition of a keyed shard: ids, values, states, and the order of use.
//
// A record has an id (8 bytes), with a capacity two links of 4 bytes, values and states. Its size is a multiple of 4
// bytes, or of 8 if an element has 8. With the 5 to 11 bytes of the index (7.5 on average), an entry takes 15.5 bytes
// plus its values and states; 23.5 with a capacity. Erased records are reused, but freed only when the table is
// destroyed.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mix.hpp"
#include "base/prefetch.hpp"
#include "shard/keyed/index.hpp"
#include "shard/keyed/slab.hpp"
#include "shard/shard.hpp"

namespace mv::shard {

/// The offsets in a record.
struct RecordLayout {
  RecordLayout(const Spec& spec, size_t states);
  bool is_linked;  ///< has links, to find the least recently used record
  size_t values_at, row_bytes, states, stride;
  size_t state_at(size_t index) const { return values_at + (1 + index) * row_bytes; }
  bool operator==(const RecordLayout&) const = default;
};

/// Ids of rows that are not stored. With a limit, the oldest are dropped, so that two copies of a shard drop the same ones.
class AbsentRows {
 public:
  /// Notes an id, unless it is known. `most`: the limit, always the same one; 0: none.
  void note(int64_t id, size_t most);
  bool erase(int64_t id);
  /// In the order in which they were noted, if there is a limit.
  std::vector<int64_t> ids() const;
  size_t bytes() const;

 private:
  struct Noted {
    uint64_t number;
    int64_t id;
  };
  bool is_known(const Noted& noted) const;

  uint64_t next_ = 0;
  std::unordered_map<int64_t, uint64_t> numbers_;  ///< by id; they grow
  std::deque<Noted> order_;                        ///< if there is a limit; also some that were erased
};

/// The records of a partition, found by id. The owner locks.
class Records {
 public:
  /// The parameters are those of Index and Slab.
  Records(const RecordLayout& layout, unsigned skipped_bits, std::shared_ptr<IndexPool> indexes, size_t user,
          std::shared_ptr<ChunkPool> pool)
      : layout_(layout), index_(skipped_bits, std::move(indexes), user), slab_(std::move(pool), layout.stride) {}

  static constexpr uint32_t kNone = Index::kNone;
  const RecordLayout& layout() const { return layout_; }
  const Index& index() const { return index_; }
  size_t size() const { return index_.size(); }

  std::byte* at(uint32_t slot) const { return slab_.at(slot); }
  Slab::Pieces pieces() const { return Slab::Pieces(slab_); }
  int64_t id(uint32_t slot) const {
    int64_t id;
    std::memcpy(&id, at(slot), sizeof(id));
    return id;
  }
  std::byte* values(uint32_t slot) const { return at(slot) + layout_.values_at; }
  std::byte* state(uint32_t slot, size_t index) const { return at(slot) + layout_.state_at(index); }

  /// The slot of the id, or kNone. Hashes are base::mix(id).
  uint32_t find(int64_t id, uint64_t hash) const;
  /// Prefetch the memory that find() and its caller access. Call prefetch_index() for some ids and, a little later,
  /// prefetch_records().
  void prefetch_index(uint64_t hash) const { index_.prefetch(hash); }
  /// For each of these places: likely[place] becomes the slot of the record that has been prefetched for hashes[place], or kNone.
  void prefetch_records(std::span<const uint16_t> places, const uint64_t* hashes, uint32_t* likely) const {
    const Index::Tags tags(index_);
    const Slab::Pieces pieces(slab_);
    const size_t last = layout_.stride - 1;
    for (const uint16_t place : places) {
      const uint32_t slot = tags.likely(hashes[place]);
      likely[place] = slot;
      if (slot == kNone) continue;
      base::prefetch_to_write(pieces.at(slot));
      base::prefetch_to_write(pieces.at(slot) + last);
    }
  }
  /// find(), at once if `likely` is a result of prefetch_records(): no record may have been erased since, except the least
  /// recently used one.
  uint32_t find(int64_t id, uint64_t hash, uint32_t likely) const {
    const bool is_it = likely != kNone && !layout_.is_linked && this->id(likely) == id;
    return is_it ? likely : find(id, hash);
  }
  /// The number of records that insert() can make without more memory.
  size_t room() const { return std::min(slab_.slots() - index_.size(), index_.room()); }
  /// Makes room for `more` records. Throws std::bad_alloc; others see no change then.
  void reserve(size_t more);
  /// Makes a record for an id that has none. Its values are undefined, its states zeros. Throws std::bad_alloc.
  uint32_t insert(int64_t id, uint64_t hash);
  /// False if there is no such id.
  bool erase(int64_t id, uint64_t hash);

  // Only if layout().is_linked.
  void touch(uint32_t slot);
  uint32_t least_recently_used() const { return oldest_; }
  /// The record that was used next after this one, or kNone.
  uint32_t used_after(uint32_t slot) const { return links(slot).newer; }

  /// Replaces the states of all records by those of another layout, zeros. Ids, values and slots stay.
  void relayout(const RecordLayout& layout, std::shared_ptr<ChunkPool> pool);
  void clear_states();

  /// The worker's backup of a row, see Block::backup; made if `wanted`. Zeros if the worker has not got the row since
  /// the record was made. Null if there is no memory for it and it is not wanted.
  std::byte* backup(Worker worker, uint32_t slot, bool wanted);
  /// The worker got a row that has no record. Remembers at most `most` such rows (0: no limit) and drops others.
  void note_absent(Worker worker, int64_t id, size_t most) { backups_of(worker).absent.note(id, most); }
  /// give(backup) for each worker that got the row before it had this record.
  template <typename Give>
  void give_backups_of_absent(int64_t id, uint32_t slot, const Give& give) {
    for (auto& [worker, kept] : backups_)
      if (kept.absent.erase(id)) give(backup(worker, slot, true));
  }
  /// visit(worker, backup, absent) for each worker that got something; `backup(slot)` is null if it has none.
  template <typename Visit>
  void for_each_worker(const Visit& visit) const {
    for (const auto& [worker, kept] : backups_)
      visit(worker, [&slab = kept.slab](uint32_t slot) -> const std::byte* { return slab.has(slot) ? slab.at(slot) : nullptr; }, kept.absent);
  }
  /// The workers that got something.
  size_t workers() const { return backups_.size(); }
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
  uint32_t used_ = 0;      ///< slots that were used at any time
  uint32_t free_ = kNone;  ///< first free slot; each holds the number of the next one
  uint32_t newest_ = kNone, oldest_ = kNone;
  std::shared_ptr<ChunkPool> backup_pool_;
  /// The values that one worker last got.
  struct Backups {
    Slab slab;
    AbsentRows absent;  ///< ids that had no record at that time
  };
  Backups& backups_of(Worker worker);
  std::map<Worker, Backups> backups_;
};

}  // namespace mv::shard
