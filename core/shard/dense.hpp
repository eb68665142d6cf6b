#pragma once
// A shard of an array or a matrix: contiguous rows, all of which are stored.
//
// Memory per element: the storage dtype's bytes, the same again for each state of the updater, and, if the updater
// keeps backups, for each worker that gets from the table. Pages that were never written take no memory.

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory.hpp"
#include "shard/segment.hpp"
#include "shard/shard.hpp"
#include "shard/updater/updater.hpp"

namespace mv::shard {

class DenseSnapshot;

class DenseShard final : public Shard, public std::enable_shared_from_this<DenseShard> {
 public:
  static base::Result<std::shared_ptr<Shard>> make(SpecRef spec, const Position& place);

  void change(Write write, Worker worker, uint64_t first, uint64_t count, const std::byte* values,
              ChangePart piece) override;
  void read(Worker worker, uint64_t first, uint64_t count, std::byte* out) override;
  void add_made(Worker worker, uint64_t first, uint64_t count, const Make& make, ChangePart piece) override;
  void forget_pieces(Worker worker) override;
  void read_each(Worker worker, std::span<std::byte* const> outs) override;
  void change_rows(Write write, Worker worker, std::span<const int64_t> rows, const std::byte* values,
                   ChangePart piece) override;
  void read_rows(Worker worker, std::span<const int64_t> rows, std::byte* out) override;
  base::Result<Scanned> scan(int64_t cursor, size_t most, bool with_values) override;

  base::Status set_updater(const UpdaterSpec& updater) override;
  bool gathers_pieces() const override;
  Usage usage() const override;

  void expect() const override;
  std::shared_ptr<base::SharedMemory> shared() const override;
  void publish_clock(uint64_t clock) override;
  void close_to_readers() override;
  void destroy() override;

  base::Result<std::unique_ptr<Snapshot>> snapshot(Scope scope) override;
  bool has_snapshot() const override;
  base::Status restore(const Restored& rows) override;
  base::Status restore_states(const Restored& rows) override;
  void read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out) override;
  uint64_t next_stored(uint64_t array) const override;

 private:
  friend class DenseSnapshot;
  friend class PlainModels;

  void with_updater(const UseUpdater& use) const override;

  /// Arrays that accompany the values: each has their size, with each element at the same index.
  struct Beside {
    std::vector<base::Memory> states;
    std::mutex mutex;
    std::map<Worker, base::Memory> backups;
  };
  /// An updater in use, with its arrays and its progress.
  struct Model {
    UpdaterSpec spec;
    std::unique_ptr<Updater> updater;
    bool adds;  ///< "add", which has fast paths
    std::shared_ptr<Beside> beside;
    std::shared_ptr<Progress> progress;  ///< of an updater that counts
  };
  using ModelRef = std::shared_ptr<const Model>;
  /// The unit of locking. Its model is the shard's, except while set_updater() replaces the model stripe by stripe.
  struct Stripe {
    std::mutex mutex;
    ModelRef model;
    DenseSnapshot* unread = nullptr;  ///< a snapshot that has not read all of the stripe
    uint64_t kept = 0;                ///< bit mask of the 64 pieces that were copied for the snapshot
  };

  /// An add of which some pieces have not arrived.
  struct Gathered {
    std::vector<std::byte> gradient;
    std::vector<bool> has;  ///< by stripe
    uint64_t missing;       ///< elements
  };

  DenseShard(SpecRef spec, Range rows, base::Memory memory, std::unique_ptr<Segment> segment, const Position& place);
  base::Result<ModelRef> make_model(const UpdaterSpec& updater) const;

  std::byte* at(std::byte* array, uint64_t element) const { return array + element * stored_bytes_; }
  /// The worker's backups, made if `wanted`; null if there are none.
  std::byte* backup(const Model& model, Worker worker, bool wanted) const;

  /// work(stripe, first element, count, elements of the call before them) for each stripe, under its lock.
  template <typename Work>
  void for_stripes(uint64_t first, uint64_t count, Work work);
  /// Rows of a call that are in one stripe. The index of the i-th one in the call is first + places[i], or first + i if
  /// places is null.
  struct Run {
    std::span<const int64_t> rows;
    size_t first;
    const uint32_t* places;
    size_t place(size_t i) const { return first + (places != nullptr ? places[i] : i); }
  };
  /// work(stripe, run) for all rows, under the stripe's lock. Rows of one stripe keep their order.
  template <typename Work>
  void for_row_runs(std::span<const int64_t> rows, const Work& work);
  template <typename Work>
  void for_neighbours(const Run& some, const Work& work);
  /// work(stripe, first element, count, their byte offset in the arrays of `rows`) for the rows of this shard, under
  /// the stripe's lock.
  template <typename Work>
  void for_restored(const Restored& rows, const Work& work);
  void restore_states(const Stripe& stripe, const Restored& rows, uint64_t from, size_t source, size_t length) const;
  base::Status restore_got(const Restored& rows);
  const std::byte* stored(const Model& model, uint64_t array) const;
  /// Call this under the stripe's lock before these elements change: copies them for a snapshot.
  void before_change(Stripe& stripe, uint64_t first, uint64_t count);
  /// The same before a worker gets these elements, if the updater keeps backups.
  void before_get(const Stripe& stripe, Worker worker, uint64_t first, uint64_t count) const;
  size_t index_of(const Stripe& stripe) const { return static_cast<size_t>(&stripe - stripes_.data()); }

  void apply(const Model& model, const Step* step, Worker worker, uint64_t first, uint64_t count,
             const std::byte* values) const;
  void replace_rows(std::span<const int64_t> rows, ChangePart piece);
  void holds_more();
  void zero_rows(std::span<const int64_t> rows);
  std::vector<std::byte> spread(const Run& run, const std::byte* values) const;
  void change_whole(Stripe& stripe, const Step* step, Worker worker, const Run& run, const std::byte* values);
  void add_whole(Worker worker, const std::byte* gradient);
  void gather(Worker worker, uint64_t first, uint64_t count, const Make& make);
  void back_up(const Stripe& stripe, Worker worker, uint64_t first, uint64_t count) const;

  const size_t stored_bytes_;  ///< of an element
  const uint64_t stripe_elements_;
  const base::Memory memory_;  ///< the values, if there is no segment
  const std::unique_ptr<Segment> segment_;
  std::byte* const values_;
  const std::shared_ptr<Families> families_;
  const std::shared_ptr<PlainModels> plain_models_;
  std::vector<Stripe> stripes_;

  mutable std::mutex mutex_;  ///< lock order: before any stripe's
  ModelRef model_;
  bool snapshot_taken_ = false;

  // Properties of the updater, readable without a lock. The stripes may not have the new model yet.
  std::atomic<bool> copies_{false};   ///< an add only stores its values
  std::atomic<bool> wants_whole_{false};  ///< needs norms of a tensor of several stripes, so all change at once
  mutable std::mutex gathering_;          ///< lock order: before mutex_
  std::map<Worker, std::deque<Gathered>> gathered_;
  // For an updater that replaces rows: the rows that are not zeros, so that the next add need not clear all.
  std::atomic<bool> replaces_{false};
  std::mutex replacing_;               ///< lock order: before any stripe's
  std::vector<int64_t> held_;          ///< if only_held_, all other rows are zeros
  std::atomic<bool> only_held_{true};
};

template <typename Work>
void DenseShard::for_stripes(uint64_t first, uint64_t count, Work work) {
  for (uint64_t done = 0; done < count;) {
    const uint64_t from = first + done, index = from / stripe_elements_;
    const uint64_t share = std::min(count - done, (index + 1) * stripe_elements_ - from);
    Stripe& stripe = stripes_[index];
    std::lock_guard lock(stripe.mutex);
    work(stripe, from, share, done);
    done += share;
  }
}

}  // namespace mv::shard
