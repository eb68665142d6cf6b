#pragma once
// One server's part of a table, whatever kind of table it is.

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

/// Who reads or changes: a worker's number, for updaters that keep a backup for each.
using Worker = int64_t;
inline constexpr Worker kNoWorker = -1;

/// What tables share whose updaters remember nothing.
class PlainModels;
std::shared_ptr<PlainModels> make_plain_models();

/// Where a shard stands.
struct Position {
  size_t servers = 1;
  size_t index = 0;          ///< of this server
  bool shared = false;       ///< other processes of this machine may map it
  std::shared_ptr<Families> families = nullptr;  ///< the server's; null: what keys of a store share is each one's own
  std::shared_ptr<PlainModels> models = nullptr;  ///< the server's; null: each shard's own
};

/// What a shard takes.
struct Usage {
  uint64_t stored = 0;        ///< rows or keys
  uint64_t memory_bytes = 0;  ///< values, states, backups and indexes
  uint64_t state_bytes = 0;   ///< states and backups
  uint64_t updates = 0;       ///< adds that an updater which counts them has made
};

/// A worker's call may reach a shard in several pieces, one after the other: updaters count the first ones.
enum class ChangePart { kFirst, kFurther };

/// A chunk of what a keyed shard stores.
struct Scanned {
  std::vector<int64_t> rows;
  std::vector<std::byte> values;  ///< of the table's dtype, row after row
  int64_t next = -1;              ///< where to go on; -1: that was all
};

/// Memory ran out in the middle of a change, part of which was made: nobody can say what the table holds.
struct Halfway final : std::bad_alloc {
  const char* what() const noexcept override { return "out of memory in the middle of a change"; }
};

/// Values in and out are of the table's dtype; inside, halves are floats. Dense shards number their elements and rows from 0,
/// keyed ones use the table's own ids. Any thread; every call is atomic per stripe, and per row where rows fit into stripes. Callers
/// have checked ranges and ids, and summed up repeated ids of adds.
class Shard {
 public:
  /// MV_ENOMEM if the memory is not to be had. Dense: all zeros; pages are touched when first written.
  static base::Result<std::shared_ptr<Shard>> make(SpecRef spec, const Position& place);
  static base::Result<std::shared_ptr<Shard>> make(const Spec& spec, const Position& place) { return make(std::make_shared<const Spec>(spec), place); }
  virtual ~Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const Spec& spec() const { return spec_; }
  /// Dense: which of the table's rows these are. Keyed: none.
  const Range& rows() const { return rows_; }
  uint64_t elements() const { return rows_.count * spec_.cols; }

  /// Elements of a dense shard. Write::Add goes through the updater, Write::Set past it.
  virtual void change(Write write, Worker worker, uint64_t first, uint64_t count, const std::byte* values,
                      ChangePart piece = ChangePart::kFirst) = 0;
  virtual void read(Worker worker, uint64_t first, uint64_t count, std::byte* out) = 0;
  /// make(first, count, out) of such elements, of the table's dtype.
  using Make = std::function<void(uint64_t first, uint64_t count, std::byte* out)>;
  /// change(Write::Add) of elements that are made some at a time, as they are needed; `make` counts them as the shard does.
  virtual void add_made(Worker worker, uint64_t first, uint64_t count, const Make& make, ChangePart piece = ChangePart::kFirst);
  /// read() of all elements of a dense shard, into each of these places.
  virtual void read_each(Worker worker, std::span<std::byte* const> outs);
  /// The worker is lost: the rest of an add of which some pieces are here will not come.
  virtual void forget_pieces(Worker) {}
  /// Rows, of any shard, perhaps none, only to be counted. Write::Erase only of keyed ones, with null values. Of repeated rows in a
  /// Write::Set the last one stays.
  virtual void change_rows(Write write, Worker worker, std::span<const int64_t> rows, const std::byte* values,
                           ChangePart piece = ChangePart::kFirst) = 0;
  virtual void read_rows(Worker worker, std::span<const int64_t> rows, std::byte* out) = 0;
  /// Keyed: what is stored, from `cursor` (0, then Scanned::next), about `most` rows and never more. MV_EINVAL for a cursor that was never given.
  virtual base::Result<Scanned> scan(int64_t cursor, size_t most, bool with_values) = 0;

  /// The same updater with other parameters keeps its states, another one begins with zeros. MV_ENOMEM.
  virtual base::Status set_updater(const UpdaterSpec& updater) = 0;
  virtual UpdaterSpec updater() const = 0;
  /// How far the updater has come, for checkpoints.
  virtual Mark mark() const = 0;
  virtual void set_mark(const Mark& mark) = 0;
  virtual Usage usage() const = 0;

  /// It will be used in a moment: what a call looks at first is fetched into the caches.
  virtual void expect() const {}

  /// The memory that other processes may map, laid out as shard/segment.hpp says; null where there is none.
  virtual std::shared_ptr<base::SharedMemory> shared() const { return nullptr; }
  /// For readers of shared(): all workers' adds below this clock are applied (stale-synchronous tables).
  virtual void publish_clock(uint64_t) {}
  /// The table is gone: for readers of shared(), and for the callers' threads of this process.
  virtual void destroy() { destroyed = true; }

  /// The shard as it is now, to be written down by another thread while it changes. One at a time.
  virtual base::Result<std::unique_ptr<Snapshot>> snapshot() = 0;
  /// Takes rows of a snapshot, perhaps of another number of servers; what is not this server's is skipped.
  virtual base::Status restore(const Restored& rows) = 0;
  /// The same of their states only, dense. MV_EDISAGREE where the updater keeps another number of them.
  virtual base::Status restore_states(const Restored& rows) = 0;

  /// Stale-synchronous tables: every worker that has not finished has begun this iteration, and its adds from before are applied.
  std::atomic<uint64_t> least_clock{0};
  /// True once the table was destroyed; those who still hold the shard must not use it as a table any more.
  std::atomic<bool> destroyed{false};

 protected:
  Shard(SpecRef spec, Range rows) : shared_spec_(std::move(spec)), spec_(*shared_spec_), rows_(rows) {}
  const SpecRef shared_spec_;
  const Spec& spec_;
  const Range rows_;
};

}  // namespace mv::shard
