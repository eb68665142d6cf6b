#pragma once
// One table on one server: its part of the values, and the gate of its consistency.

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/prefetch.hpp"
#include "engine/table/gates/merge_gate.hpp"
#include "engine/table/gates/stale_gate.hpp"
#include "engine/table/gates/sync_gate.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/roster.hpp"
#include "shard/shard.hpp"

namespace mv::table {

class GateDecisions;

/// The gate of the table's consistency holds its requests. StaleGate also keeps the clocks of asynchronous and sync
/// tables, which checkpoints save.
/// Loop thread only.
class Table final : public SyncGate::Owner, public StaleGate::Owner, public MergeGate::Owner {
 public:
  Table(GateDecisions& decisions, uint32_t number, shard::SpecRef described, shard::Consistency consistency);

  /// The progress of its creation. The lists are short, because most clusters are small and have many tables.
  struct Creating {
    std::vector<base::Peer> creators;
    std::vector<base::Peer> told;   ///< the workers that know of its failure
    std::vector<rpc::Asked> ready;  ///< Ready requests that wait until all workers are ready
    bool wants_initial = false;     ///< a worker was given an initial value; only worker 0's counts
  };
  Creating& creating() { return creating_; }
  const Creating& creating() const { return creating_; }

  // ---- checks of requests

  base::Status check_range(uint64_t first, uint64_t count, uint64_t rows) const;
  /// The row ids at the start of a payload, copied before they are checked: its sender may still be able to write the
  /// memory.
  base::Result<std::vector<int64_t>> take_rows(std::span<const std::byte> payload, uint64_t rows, const Roster& roster) const;
  /// The codec that a message names; null for none.
  base::Result<codec::CodecRef> codec_of(const wire::Codec* wanted, uint64_t rows) const;
  /// The size of a change's payload.
  uint64_t bytes_of(const HeldChange& change) const;
  /// The elements of a table that requests for many tables may name; 0 for other tables.
  uint64_t elements_of_many() const { return spec.is_keyed() || consistency == shard::Consistency::kSync ? 0 : shard->elements(); }

  // ---- the gate. Which of these a request takes depends on the consistency.

  void set_workers(const WorkerNames& names);
  void finished(size_t worker);
  /// Returns the workers that a merging table has told of the loss.
  std::vector<base::Peer> lost(size_t worker, const base::Status& why);
  /// Whether later rounds of a merging table wait for the worker.
  bool counts_on(size_t worker) const { return !has_clocks() && merge_gate_.counts_on(worker); }
  /// Shows a merging table's clock to readers, or hides it from them.
  void show_clock(bool on);
  /// A process has taken the place of a worker that has finished or is lost. The gate waits for it once it has begun,
  /// so the others continue while it starts.
  void joined(size_t worker, const WorkerNames& names) {
    set_workers(names);
    newcomers_.insert(worker);
  }
  /// The worker creates or opens the table. Begins, unless its calls are counted: see Begin in wire/polyverso.fbs.
  void opened(size_t worker) {
    if (!counts_calls(consistency)) begins_here(worker);
  }
  bool is_newcomer(size_t worker) const { return newcomers_.contains(worker); }
  /// A newcomer begins where the gate is.
  void begins_here(size_t worker);
  /// A newcomer begins with these numbers, if it can; false: others have passed them, or an earlier process of its place
  /// has its part there already.
  bool can_begin(size_t worker, uint64_t clock, SyncGate::Count first) const;
  void begins(size_t worker, uint64_t clock, SyncGate::Count first);
  /// A newcomer that has begun does not take part yet.
  void steps_back(size_t worker);
  /// Sets the clock of all workers, after a checkpoint was loaded.
  void restart(uint64_t clock);

  /// kSync: an add that counts; see SyncGate::change().
  void change_counted(size_t worker, const rpc::Asked& asked, SyncGate::Count count, uint32_t of, uint64_t bytes, bool data_here) {
    sync_->change(worker, asked, count, of, bytes, data_here);
  }
  /// Any other change. True: it waits for the worker's earlier adds. False: apply it now.
  bool follow(int64_t worker, const rpc::Asked& asked) {
    return consistency == shard::Consistency::kSync && worker >= 0 && sync_->follow(static_cast<size_t>(worker), asked);
  }
  void data(size_t worker, const rpc::Asked& asked) { sync_->data(worker, asked); }
  /// kMerge: a part of an add; see MergeGate::change().
  void change_merged(size_t worker, const rpc::Asked& asked, uint64_t index, uint64_t stripe, uint32_t of) {
    merge_gate_.change(worker, asked, index, stripe, of);
  }
  /// A held get. `count` is for kSync, `clock` for the others.
  void get(size_t worker, const rpc::Asked& asked, uint64_t clock, SyncGate::Count count) {
    if (consistency == shard::Consistency::kStale) return stale_->get(asked, clock);
    if (consistency == shard::Consistency::kMerge) return merge_gate_.get(asked, clock);
    sync_->get(worker, asked, count);
  }
  /// Whether this change is a part of a round whose parts their sum can replace: elements of one stripe, not encoded.
  bool gathers(const wire::Change& change) const;
  /// Whether a round has parts of more than one worker.
  bool has_rounds_of_several() const { return consistency == shard::Consistency::kMerge && merge_gate_.awaits_several(); }
  /// The worker has received its get number `round`.
  void got(int64_t worker, uint64_t round) {
    if (consistency == shard::Consistency::kSync && worker >= 0) sync_->got(static_cast<size_t>(worker), round);
  }
  /// The worker has begun its clock-th iteration. Merging: it takes part from this round on.
  void begin_clock(size_t worker, uint64_t clock);
  /// Gives up a held request. True: it is withdrawn, and `missing` names the workers that it waited for.
  bool withdraw(size_t worker, const rpc::Asked& asked, std::string* missing);

  /// The clock of a worker that creates or opens the table.
  uint64_t clock_of(size_t worker) const {
    return has_clocks() ? stale_->clock_of(worker) : merge_gate_.next_round(worker);
  }
  /// In sync mode, the numbers of its next get and add.
  SyncGate::Count count_of(size_t worker) const { return sync_ != nullptr ? sync_->count_of(worker) : SyncGate::Count(); }
  /// The clock that a checkpoint saves if its workers named none.
  uint64_t least_clock() const;
  Tally tally(size_t worker) const;
  std::vector<GateWait> waits() const;
  /// Shows the clock to readers that read the shard without a request.
  void publish_clock();

  /// Nothing waits in this table, so write_table() writes its complete state.
  bool is_idle() const;
  /// While the server tries to become idle: whether a request completes something that has begun, or ends at once.
  /// Other requests wait at their clients.
  bool completes_add(size_t worker, uint64_t index) const;
  bool completes_get(const wire::Get& get) const;
  bool completes_get(uint64_t clock) const;
  /// Writes the state of the table without its values, for a copy, and reads it into a new table.
  flatbuffers::Offset<wire::PartTable> write(flatbuffers::FlatBufferBuilder& fbb) const;
  base::Status restore(const wire::PartTable& state);

  /// The worker's acknowledged add could not be merged. Its next get or add fails with `why`.
  void lose_round(base::Peer worker, base::Status why) { lost_rounds_.insert_or_assign(worker, std::move(why)); }
  bool has_lost_rounds() const { return !lost_rounds_.empty(); }
  std::optional<base::Status> take_lost_round(base::Peer worker) {
    if (lost_rounds_.empty()) return std::nullopt;
    const auto lost = lost_rounds_.extract(worker);
    return lost ? std::optional(lost.mapped()) : std::nullopt;
  }

  // Prefetch the parts of this table that a request for many tables uses. To be called in this order, with time in
  // between.

  void expect_itself() const { fetch(this, hot_bytes()); }
  void expect_parts() const {
    constexpr size_t kShardLines = 5;
    merge_gate_.expect(0);
    fetch(&spec, sizeof spec.name + kLine);
    if (shard != nullptr) fetch(shard.get(), kShardLines * kLine);
  }
  void expect_round() const {
    merge_gate_.expect(1);
    if (shard != nullptr) shard->expect();
  }
  void expect_stripe() const { merge_gate_.expect(2); }

  const uint32_t number;
  const shard::SpecRef shared_spec;
  const shard::Spec& spec;
  const shard::Consistency consistency;
  bool complete = false;
  std::shared_ptr<shard::Shard> shard;
  base::Status broken;   ///< creation failed; kept until every worker was notified
  base::Status gone;     ///< an error: without back-ups (MV_NO_BACKUPS), its values were lost with a server
  base::Nanos moved{0};  ///< when a wait on this table last ended

 private:
  void apply_change(const rpc::Asked& asked) override;
  void grant_change(const rpc::Asked& asked) override;
  void serve_get(const rpc::Asked& asked) override;
  void serve_stale(const rpc::Asked& asked) override { serve_get(asked); }
  void merge(std::span<const rpc::Asked> parts) override;
  void accept(const rpc::Asked& asked) override;
  void on_merged() override { publish_clock(); }
  void fail_gated(const rpc::Asked& asked, const base::Status& why) override;

  static constexpr size_t kLine = 64;
  static void fetch(const void* from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += kLine) base::prefetch(static_cast<const std::byte*>(from) + at);
  }
  bool has_clocks() const { return consistency != shard::Consistency::kMerge; }
  /// The size of the fields that requests for many tables use. They lie together at the beginning.
  size_t hot_bytes() const { return static_cast<size_t>(reinterpret_cast<const std::byte*>(&creating_) - reinterpret_cast<const std::byte*>(this)); }

  GateDecisions& decisions_;
  MergeGate merge_gate_;                            ///< Consistency::kMerge
  std::map<base::Peer, base::Status> lost_rounds_;  ///< by worker
  bool hides_clock_ = false;
  Creating creating_;
  std::set<size_t> newcomers_;  ///< workers that have joined, and have not begun yet
  // Only the gate of the table's consistency is allocated, since stores have very many tables. Merging needs neither.
  std::unique_ptr<SyncGate> sync_;    ///< Consistency::kSync
  std::unique_ptr<StaleGate> stale_;  ///< Consistency::kStale and kAsync
};

}  // namespace mv::table
