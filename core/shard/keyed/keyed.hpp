#pragma once
// A shard of a sparse or key-value table: it stores only rows that were changed, by id.
//
// The hashes of the ids spread them over partitions with a lock each, so that threads rarely contend and growth moves
// one partition at a time. Memory per entry: see records.hpp. With a capacity, a full partition evicts its least
// recently used row. A shard of few rows has one partition, so its order of use is exact.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "shard/keyed/initial.hpp"
#include "shard/keyed/records.hpp"
#include "shard/shard.hpp"
#include "shard/updater/updater.hpp"

namespace mv::shard {

class KeyedSnapshot;

class KeyedShard final : public Shard, public std::enable_shared_from_this<KeyedShard> {
 public:
  static base::Result<std::shared_ptr<Shard>> make(SpecRef spec, const Position& place);

  void change(Write write, Worker worker, uint64_t first, uint64_t count, const std::byte* values,
              ChangePart piece) override;
  void read(Worker worker, uint64_t first, uint64_t count, std::byte* out) override;
  void change_rows(Write write, Worker worker, std::span<const int64_t> rows, const std::byte* values,
                   ChangePart piece) override;
  void read_rows(Worker worker, std::span<const int64_t> rows, std::byte* out) override;
  base::Result<Scanned> scan(int64_t cursor, size_t most, bool with_values) override;

  base::Status set_updater(const UpdaterSpec& updater) override;
  Usage usage() const override;

  base::Result<std::unique_ptr<Snapshot>> snapshot(Scope scope) override;
  bool has_snapshot() const override;
  base::Status restore(const Restored& rows) override;
  base::Status restore_states(const Restored& rows) override;
  base::Result<Scanned> scan_stored(int64_t cursor, size_t most) override;
  size_t stored_row_bytes() const override;

 private:
  friend class KeyedSnapshot;

  void with_updater(const UseUpdater& use) const override;

  /// An updater in use, with its progress.
  struct Model {
    UpdaterSpec spec;
    std::unique_ptr<Updater> updater;
    bool adds;                           ///< "add", which has fast paths
    std::shared_ptr<Progress> progress;  ///< of an updater that counts
  };
  using ModelRef = std::shared_ptr<const Model>;
  /// The unit of locking. Its model is the shard's, except while set_updater() replaces the model one partition at a
  /// time.
  struct alignas(64) Partition {
    Partition(size_t index, const RecordLayout& layout, unsigned skipped_bits, std::shared_ptr<IndexPool> indexes,
         std::shared_ptr<ChunkPool> pool)
        : index(index), records(layout, skipped_bits, std::move(indexes), index, std::move(pool)) {}
    const size_t index;
    std::mutex mutex;
    Records records;
    ModelRef model;
    KeyedSnapshot* unread = nullptr;  ///< a snapshot that has not read all of the partition
    std::atomic<size_t> room{0};      ///< rows that can be made without more memory; written under the lock
  };
  /// Some rows of a call, all of one partition.
  struct Batch {
    std::span<const int64_t> rows;
    const uint64_t* hashes;
    std::span<const uint16_t> places;  ///< their indices in rows and hashes
    size_t first;                      ///< the index of rows[0] in the call
    const uint32_t* likely;            ///< by indices in rows: the records that were prefetched
  };

  KeyedShard(SpecRef spec, const Position& place);
  size_t part_of(uint64_t hash) const { return static_cast<size_t>((hash >> 1) >> (63 - part_bits_)); }

  /// work(part, batch) for all rows, under the partition's lock, in their order within a partition.
  template <typename Work>
  void for_parts(std::span<const int64_t> rows, const Work& work);
  /// Call this under the partition's lock before anything in it changes: copies its unread rows for a snapshot.
  void before_change(Partition& part);
  /// The same before a worker gets something of it, if the updater keeps backups.
  void before_get(Partition& part);

  /// Call this under the partition's lock after changes in it.
  void note_room(Partition& part) const;
  /// Gets all memory that these rows need, so that a change of many rows is made or not. Throws std::bad_alloc.
  void make_room(std::span<const int64_t> rows);
  /// The row's record, made if there is none; sets *is_new. Evicts another record if the partition is full.
  uint32_t reach(Partition& part, int64_t id, uint64_t hash, uint32_t likely, bool* is_new);
  void add(Partition& part, const Step* step, Worker worker, uint32_t slot, int64_t id, const std::byte* values);
  void get(Partition& part, Worker worker, int64_t id, uint64_t hash, uint32_t likely, std::byte* out);
  base::Status restore_got(const Restored& rows);

  template <typename Take>
  base::Result<Scanned> scan_by(int64_t cursor, size_t most, const Take& take);
  void take_stored(const Records& records, uint32_t slot, Scanned& out) const;

  const size_t servers_, server_;
  const size_t stored_bytes_;  ///< of an element
  const uint64_t most_rows_;   ///< of a partition; 0: no limit
  const unsigned part_bits_;
  const InitialValues initial_;
  std::vector<std::unique_ptr<Partition>> parts_;

  mutable std::mutex mutex_;  ///< lock order: before any partition's
  ModelRef model_;
  bool snapshot_taken_ = false;
};

}  // namespace mv::shard
