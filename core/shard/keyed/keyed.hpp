#pragma once
// A server's part of a sparse or key-value table: only rows that were ever changed are stored, by their ids.
//
// Ids are spread by their hashes over parts with a lock each, so that threads rarely meet and growth moves one part at
// a time. Memory per entry: see records.hpp. With a capacity, each part forgets its least recently used row when it is
// full; few rows make one part, and the order is exact.

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
  UpdaterSpec updater() const override;
  Mark mark() const override;
  void set_mark(const Mark& mark) override;
  Usage usage() const override;

  base::Result<std::unique_ptr<Snapshot>> snapshot() override;
  base::Status restore(const Restored& rows) override;
  base::Status restore_states(const Restored& rows) override;

 private:
  friend class KeyedSnapshot;

  /// An updater at work.
  struct Model {
    UpdaterSpec spec;
    std::unique_ptr<Updater> updater;
    bool adds;                           ///< "add", for which there are shorter ways
    std::shared_ptr<Progress> progress;  ///< of one that counts
  };
  using ModelRef = std::shared_ptr<const Model>;
  /// Its model is the shard's, but for the moment in which another one makes its way through the parts.
  struct alignas(64) Partition {
    Partition(size_t index, const RecordLayout& layout, unsigned skipped_bits, std::shared_ptr<IndexPool> indexes,
         std::shared_ptr<ChunkPool> pool)
        : index(index), records(layout, skipped_bits, std::move(indexes), index, std::move(pool)) {}
    const size_t index;
    std::mutex mutex;
    Records records;
    ModelRef model;
    KeyedSnapshot* unread = nullptr;  ///< a snapshot that wants its contents as they are
  };
  /// Some of a call's rows, all of one part.
  struct Batch {
    std::span<const int64_t> rows;
    const uint64_t* hashes;
    std::span<const uint16_t> places;  ///< which of the rows
    size_t first;                      ///< the place of rows[0] in the call
  };

  KeyedShard(SpecRef spec, const Position& place);
  size_t part_of(uint64_t hash) const { return static_cast<size_t>((hash >> 1) >> (63 - part_bits_)); }

  /// work(part, batch) for all rows, under the part's lock, in their order within a part.
  template <typename Work>
  void for_parts(std::span<const int64_t> rows, const Work& work);
  /// To be called under the part's lock before anything in it changes.
  void before_change(Partition& part);

  /// The row's record, which is made if there is none; *is_new tells. Forgets another one where the part is full.
  uint32_t reach(Partition& part, int64_t id, uint64_t hash, bool* is_new);
  void add(Partition& part, const Step* step, Worker worker, uint32_t slot, int64_t id, const std::byte* values);
  void get(Partition& part, Worker worker, int64_t id, uint64_t hash, std::byte* out);

  using Found = std::vector<std::pair<uint64_t, uint32_t>>;  ///< upper bits of hashes, and slots
  Found find_from(const Records& records, uint64_t from, size_t room) const;

  const size_t servers_, server_;
  const size_t stored_bytes_;  ///< of an element
  const uint64_t most_rows_;   ///< in a part; 0: no limit
  const unsigned part_bits_;
  const InitialValues initial_;
  std::vector<std::unique_ptr<Partition>> parts_;

  mutable std::mutex mutex_;  ///< before any part's
  ModelRef model_;
  bool snapshot_taken_ = false;
};

}  // namespace mv::shard
