#pragma once
// A shard: one server's part of a table. The interface of all kinds of tables.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "shard/snapshot.hpp"
#include "shard/spec.hpp"
#include "shard/updater/progress.hpp"
#include "wire/polyverso_generated.h"

namespace mv::shard {

using wire::Write;

class OnDevice;

/// The updater models that tables with stateless updaters share.
class PlainModels;
std::shared_ptr<PlainModels> make_plain_models();

/// What a shard needs to know about its server.
struct Position {
  size_t servers = 1;
  size_t index = 0;          ///< of this server
  bool shared = false;       ///< other processes of this machine can map the shard
  std::shared_ptr<Families> families = nullptr;  ///< the server's; null: the keys of a store share nothing
  std::shared_ptr<PlainModels> models = nullptr;  ///< the server's; null: each shard makes its own
};

/// The size of a shard, for statistics.
struct Usage {
  uint64_t stored = 0;        ///< rows or keys
  uint64_t memory_bytes = 0;  ///< values, states, backups and indexes
  uint64_t state_bytes = 0;   ///< states and backups
  uint64_t updates = 0;       ///< adds that a counting updater has applied
  uint64_t host_bytes = 0;    ///< on a device: of memory_bytes, what is in the host's memory, since the device has no more
};

/// A worker's call can reach a shard in several pieces, one after the other. Updaters count only first pieces.
enum class ChangePart { kFirst, kFurther };

/// A chunk of the rows that a keyed shard stores.
struct Scanned {
  std::vector<int64_t> rows;
  std::vector<std::byte> values;  ///< of the table's dtype, row after row
  std::vector<std::byte> beside;  ///< of scan_stored(): states, and what workers last got
  int64_t next = -1;              ///< the cursor of the next chunk; -1: this was the last one
};

/// Memory ran out in the middle of a change. Part of it was made, so the content of the table is unknown.
struct Halfway final : std::bad_alloc {
  const char* what() const noexcept override { return "out of memory in the middle of a change"; }
};

/// One server's part of a table. Values in and out have the table's dtype; inside, 16-bit floats are stored as float32.
/// Dense shards number their elements and rows from 0, keyed shards use the table's own ids. Any thread. Each call is
/// atomic per stripe, and per row where a row fits into a stripe. Callers have checked ranges and ids, and have
/// combined repeated ids of adds.
class Shard {
 public:
  /// MV_ENOMEM if memory runs out. A dense shard begins with zeros; its pages are touched when first written.
  static base::Result<std::shared_ptr<Shard>> make(SpecRef spec, const Position& place);
  static base::Result<std::shared_ptr<Shard>> make(const Spec& spec, const Position& place) { return make(std::make_shared<const Spec>(spec), place); }
  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const Spec& spec() const { return spec_; }
  /// This shard, if it is in the memory of a device; otherwise null.
  virtual OnDevice* on_device() { return nullptr; }
  /// Dense: the table's rows that this shard holds. Keyed: empty.
  const Range& rows() const { return rows_; }
  uint64_t elements() const { return rows_.count * spec_.cols; }

  /// Changes elements of a dense shard. Write::Add uses the updater, Write::Set bypasses it.
  virtual void change(Write write, Worker worker, uint64_t first, uint64_t count, const std::byte* values,
                      ChangePart piece = ChangePart::kFirst) = 0;
  virtual void read(Worker worker, uint64_t first, uint64_t count, std::byte* out) = 0;
  /// make(first, count, out) writes these elements to `out`, in the table's dtype.
  using Make = std::function<void(uint64_t first, uint64_t count, std::byte* out)>;
  /// change(Write::Add) of elements that `make` produces in pieces, on demand. `make` numbers elements as the shard
  /// does.
  virtual void add_made(Worker worker, uint64_t first, uint64_t count, const Make& make, ChangePart piece = ChangePart::kFirst);
  /// read() of all elements of a dense shard, into each of `outs`.
  virtual void read_each(Worker worker, std::span<std::byte* const> outs);
  /// The worker is lost: discards the pieces of its incomplete adds.
  virtual void forget_pieces(Worker) {}
  /// Changes rows of any shard. An add of no rows is only counted. Write::Erase is for keyed shards, with null values.
  /// If a Write::Set repeats a row, the last one wins.
  virtual void change_rows(Write write, Worker worker, std::span<const int64_t> rows, const std::byte* values,
                           ChangePart piece = ChangePart::kFirst) = 0;
  virtual void read_rows(Worker worker, std::span<const int64_t> rows, std::byte* out) = 0;
  /// Keyed: the stored rows from `cursor` on (0, then Scanned::next), about `most` of them and never more. MV_EINVAL
  /// for a number that is no cursor, and if `most` is too small for rows that must stay together.
  virtual base::Result<Scanned> scan(int64_t cursor, size_t most, bool with_values) = 0;

  /// The same updater with other parameters keeps its states; a different updater begins with zeros. MV_ENOMEM.
  virtual base::Status set_updater(const UpdaterSpec& updater) = 0;
  UpdaterSpec updater() const;
  /// Whether reads by workers change it: the updater keeps the values that each worker last got.
  bool keeps_backups() const { return backs_up_.load(std::memory_order_relaxed); }
  /// The progress of the updater, for checkpoints.
  Mark mark() const;
  void set_mark(const Mark& mark);
  /// The progress within an add: see Progress. Nothing if the updater does not count.
  WithinAdd within_add() const;
  void set_within_add(const WithinAdd& within);
  /// Whether pieces of an add wait here for the others.
  virtual bool gathers_pieces() const { return false; }
  virtual Usage usage() const = 0;

  /// A call will follow soon: prefetches the memory that it accesses first.
  virtual void expect() const {}

  /// The memory that other processes can map, with the layout of shard/segment.hpp; null if there is none.
  virtual std::shared_ptr<base::SharedMemory> shared() const { return nullptr; }
  /// For readers of shared(): all workers' adds below this clock are applied (stale-synchronous tables).
  virtual void publish_clock(uint64_t) {}
  /// Readers of shared() must send their gets from now on: another process will change the table.
  virtual void close_to_readers() {}
  /// Marks the table as destroyed, for readers of shared() and for callers' threads of this process.
  virtual void destroy() { destroyed = true; }

  /// The shard as it is now. Another thread can save it while the shard changes. One snapshot at a time.
  virtual base::Result<std::unique_ptr<Snapshot>> snapshot(Scope scope = Scope::kSaved) = 0;
  /// Whether snapshot() would fail because there is one.
  virtual bool has_snapshot() const { return false; }
  /// Restores rows of a snapshot, which can be from a cluster with another number of servers. Skips the rows of other
  /// servers. What workers got can only be restored into a new shard, after the values of the same rows. MV_EINVAL if
  /// the rows do not fit the table or its updater; throws std::bad_alloc.
  virtual base::Status restore(const Restored& rows) = 0;
  /// Like restore(), but restores only states; dense only. MV_EDISAGREE if the updater keeps another number of states.
  virtual base::Status restore_states(const Restored& rows) = 0;

  // Everything that is stored, in the storage dtype, for comparisons of copies.

  /// Dense: reads an array. Array 0 has the values, the next ones the states, then comes one for each worker with what
  /// it last got, by the number of the worker. Zeros if there is no such array.
  virtual void read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out);
  /// Dense: the array after this one; 0 if it was the last one.
  virtual uint64_t next_stored(uint64_t) const { return 0; }
  /// Keyed: like scan(), with everything that is stored of the rows.
  virtual base::Result<Scanned> scan_stored(int64_t cursor, size_t most);
  /// Keyed: the bytes of a row in scan_stored(), at most.
  virtual size_t stored_row_bytes() const { return spec_.row_bytes(); }

  /// Stale-synchronous tables: every worker that has not finished has begun this iteration, and all its earlier adds
  /// are applied.
  std::atomic<uint64_t> least_clock{0};
  /// True once the table was destroyed. Holders of the shard must then no longer use it as a table.
  std::atomic<bool> destroyed{false};

 protected:
  Shard(SpecRef spec, Range rows) : shared_spec_(std::move(spec)), spec_(*shared_spec_), rows_(rows) {}
  /// Calls `use` with the updater, under the lock under which set_updater() replaces it. `progress` is null if the updater
  /// does not count.
  using UseUpdater = std::function<void(const UpdaterSpec& spec, Progress* progress)>;
  virtual void with_updater(const UseUpdater& use) const = 0;
  /// MV_EINVAL unless a dense shard can have this updater.
  base::Status check_dense(const UpdaterSpec& updater, uint64_t stripes) const;
  /// MV_EINVAL unless a keyed shard can have this updater.
  base::Status check_keyed(const UpdaterSpec& updater) const;
  /// For an updater that counts. Keys of a store share what their updater shares.
  std::shared_ptr<Progress> make_progress(const std::string& name, const Updater& updater, Families* families) const;

  const SpecRef shared_spec_;
  const Spec& spec_;
  const Range rows_;
  /// A property of the updater, readable without a lock. Stripes and partitions may not have the new updater yet.
  std::atomic<bool> backs_up_{false};
};

}  // namespace mv::shard
