#include "engine/table/server/part_state.hpp"

#include <algorithm>
#include <utility>

#include "engine/table/spec_wire.hpp"
#include "shard/updater/updater.hpp"
#include "wire/text.hpp"

namespace mv::table {

namespace {

flatbuffers::Offset<wire::Loss> write_loss(flatbuffers::FlatBufferBuilder& fbb, base::Peer worker, const base::Status& why) {
  return wire::CreateLossDirect(fbb, worker, why.code(), why.text().c_str());
}
base::Status read_loss(const wire::Loss* loss) {
  return loss != nullptr && loss->status() != MV_OK ? base::Status(static_cast<mv_status>(loss->status()), wire::text_of(loss->text()))
                                                    : base::Status();
}

template <typename To>
void read_all(const flatbuffers::Vector<uint64_t>* from, To& to) {
  if (from != nullptr) to.assign(from->begin(), from->end());
}

}  // namespace

// ---- a table

bool Table::is_idle() const {
  if (!has_clocks() && !merge_gate_.is_between_rounds()) return false;
  if (sync_ != nullptr && !sync_->is_between_adds()) return false;
  return creating_.ready.empty() && (shard == nullptr || !shard->gathers_pieces());
}

bool Table::completes_add(size_t worker, uint64_t index) const {
  if (consistency == shard::Consistency::kMerge) return merge_gate_.has_begun(index);
  return consistency != shard::Consistency::kSync || sync_->awaits_add(worker, index);
}

bool Table::completes_get(const wire::Get& get) const {
  if (consistency == shard::Consistency::kSync) return sync_->is_ready_or_awaits_get({get.round(), get.index()});
  return completes_get(get.clock());
}

bool Table::completes_get(uint64_t clock) const {
  if (consistency == shard::Consistency::kMerge) return clock <= merge_gate_.merged();
  return consistency != shard::Consistency::kStale || stale_->is_ready(clock);
}

flatbuffers::Offset<wire::PartTable> Table::write(flatbuffers::FlatBufferBuilder& fbb) const {
  std::vector<flatbuffers::Offset<wire::WorkerProgress>> workers;
  if (has_clocks()) {
    const auto progress = sync_ != nullptr ? sync_->state() : std::vector<SyncGate::Progress>(stale_->state().size());
    for (size_t i = 0; i < progress.size(); ++i) {
      const SyncGate::Progress& of = progress[i];
      const StaleGate::Worker& clock = stale_->state()[i];
      std::vector<uint64_t> rounds, adds;
      for (const auto& [round, before] : of.closed) {
        rounds.push_back(round);
        adds.push_back(before);
      }
      const auto early = fbb.CreateVector(std::vector<uint64_t>(of.got_early.begin(), of.got_early.end()));
      const auto closed = fbb.CreateVector(rounds), closed_adds = fbb.CreateVector(adds);
      workers.push_back(wire::CreateWorkerProgress(fbb, sync_ != nullptr ? of.active : clock.active, clock.clock, of.got, early, of.applied,
                                                   of.latest.round, of.latest.index, closed, closed_adds, 0, newcomers_.contains(i)));
    }
  } else {
    for (const uint64_t first : merge_gate_.first_rounds()) {
      wire::WorkerProgressBuilder worker(fbb);
      worker.add_first(first);
      worker.add_newcomer(newcomers_.contains(workers.size()));
      workers.push_back(worker.Finish());
    }
  }
  std::vector<flatbuffers::Offset<wire::Loss>> lost_rounds;
  for (const auto& [worker, why] : lost_rounds_) lost_rounds.push_back(write_loss(fbb, worker, why));
  const shard::Mark mark = shard != nullptr ? shard->mark() : shard::Mark();
  const shard::WithinAdd within = shard != nullptr ? shard->within_add() : shard::WithinAdd();
  const auto described = write_spec(fbb, spec);
  const auto updater = shard != nullptr ? write_updater(fbb, shard->updater()) : flatbuffers::Offset<wire::Updater>();
  const auto shared = fbb.CreateVector(mark.shared), current = fbb.CreateVector(within.shared);
  const auto creators = fbb.CreateVector(creating_.creators), told = fbb.CreateVector(creating_.told);
  const auto lost_values = !gone.ok() ? write_loss(fbb, 0, gone) : flatbuffers::Offset<wire::Loss>();
  const auto failed = !broken.ok() ? write_loss(fbb, 0, broken) : flatbuffers::Offset<wire::Loss>();
  const bool is_out_of_step = sync_ != nullptr && !sync_->out_of_step().ok();
  const auto out_of_step = is_out_of_step ? write_loss(fbb, 0, sync_->out_of_step()) : flatbuffers::Offset<wire::Loss>();
  const auto all_workers = fbb.CreateVector(workers);
  const auto all_lost = fbb.CreateVector(lost_rounds);
  const SyncGate::Count next = sync_ != nullptr ? sync_->next() : SyncGate::Count();
  return wire::CreatePartTable(fbb, number, described, updater, mark.updates, shared, within.pieces, current, complete, creating_.wants_initial,
                               hides_clock_, creators, told, failed, all_workers, out_of_step, merge_gate_.merged(), all_lost, next.round, next.index, lost_values);
}

base::Status Table::restore(const wire::PartTable& state) {
  const auto* const workers = state.workers();
  const size_t known = has_clocks() ? stale_->state().size() : merge_gate_.first_rounds().size();
  if (state.updater() != nullptr && shard == nullptr) return broken;
  if (workers == nullptr || workers->size() != known || (shard == nullptr && state.broken() == nullptr))
    return base::error(MV_EPROTOCOL, "table \"{}\" of a copied part does not fit the cluster", spec.name);
  complete = state.complete();
  broken = read_loss(state.broken());
  gone = read_loss(state.gone());
  hides_clock_ = state.hides_clock();
  creating_.wants_initial = state.wants_initial();
  read_all(state.creators(), creating_.creators);
  read_all(state.told(), creating_.told);
  if (state.lost_rounds() != nullptr)
    for (const wire::Loss* lost : *state.lost_rounds()) lose_round(lost->worker(), read_loss(lost));
  std::vector<SyncGate::Progress> progress(known);
  std::vector<StaleGate::Worker> clocks(known);
  std::vector<uint64_t> first_rounds(known);
  for (uint32_t i = 0; i < known; ++i) {
    const wire::WorkerProgress& of = *workers->Get(i);
    SyncGate::Progress& to = progress[i];
    to.active = of.active();
    to.got = of.got();
    to.applied = of.applied();
    to.latest = {of.latest_round(), of.latest_index()};
    std::vector<uint64_t> early, rounds, adds;
    read_all(of.got_early(), early);
    read_all(of.closed_rounds(), rounds);
    read_all(of.closed_adds(), adds);
    to.got_early.insert(early.begin(), early.end());
    for (size_t at = 0; at < std::min(rounds.size(), adds.size()); ++at) to.closed.emplace(rounds[at], adds[at]);
    clocks[i] = {of.active(), of.clock()};
    first_rounds[i] = of.first();
    if (of.newcomer()) newcomers_.insert(i);
  }
  if (sync_ != nullptr) sync_->restore(progress, read_loss(state.out_of_step()), {state.next_get(), state.next_add()});
  has_clocks() ? stale_->restore(std::move(clocks)) : merge_gate_.restore(state.merged(), std::move(first_rounds));
  publish_clock();
  if (shard == nullptr) return {};
  const shard::UpdaterSpec updater = read_updater(state.updater());
  if (base::Status wrong = shard::check_updater(updater, spec.dtype); !wrong.ok()) return wrong;
  if (base::Status wrong = shard->set_updater(updater); !wrong.ok()) return wrong;
  shard::Mark mark{state.updates(), {}};
  if (state.shared() != nullptr) mark.shared.assign(state.shared()->begin(), state.shared()->end());
  shard->set_mark(mark);
  shard::WithinAdd within{state.pieces(), {}};
  if (state.current() != nullptr) within.shared.assign(state.current()->begin(), state.current()->end());
  shard->set_within_add(within);
  return {};
}

// ---- all tables

bool PartState::is_idle() const {
  if (held_.size() > 0 || !creations_.is_idle() || !answers_.is_idle() || !transfers_.is_idle()) return false;
  bool all = true;
  registry_.for_each([&](const Table& table) { all = all && table.is_idle(); });
  return all;
}

bool PartState::may_start(const rpc::Asked& asked, const wire::Message& request) const {
  const int64_t id = roster_.worker_id(asked.client);
  if (id < 0) return true;
  const auto worker = static_cast<size_t>(id);
  const auto sound = [&](uint32_t number) -> const Table* {
    const Table* const table = registry_.at(number);
    return table != nullptr && table->shard != nullptr ? table : nullptr;  // requests for others fail at once
  };
  if (const auto* change = request.body_as_Change()) {
    const Table* const table = sound(change->table());
    return table == nullptr || change->write() != wire::Write::Add || table->completes_add(worker, change->index());
  }
  if (const auto* get = request.body_as_Get()) {
    const Table* const table = sound(get->table());
    return table == nullptr || !get->gated() || table->completes_get(*get);
  }
  if (const auto* changes = request.body_as_ChangeMany(); changes != nullptr && changes->tables() != nullptr && changes->indexes() != nullptr) {
    for (uint32_t i = 0; i < std::min(changes->tables()->size(), changes->indexes()->size()); ++i) {
      const Table* const table = sound(changes->tables()->Get(i));
      if (table != nullptr && !table->completes_add(worker, changes->indexes()->Get(i))) return false;
    }
  }
  if (const auto* gets = request.body_as_GetMany(); gets != nullptr && gets->gated() && gets->tables() != nullptr && gets->clocks() != nullptr) {
    for (uint32_t i = 0; i < std::min(gets->tables()->size(), gets->clocks()->size()); ++i) {
      const Table* const table = sound(gets->tables()->Get(i));
      if (table != nullptr && !table->completes_get(gets->clocks()->Get(i))) return false;
    }
  }
  if (const auto* ready = request.body_as_Ready()) return creations_.awaits_ready(*ready);
  return true;
}

std::vector<flatbuffers::Offset<wire::Loss>> PartState::write_losses(flatbuffers::FlatBufferBuilder& fbb) const {
  std::vector<flatbuffers::Offset<wire::Loss>> losses;
  for (const auto& [worker, why] : losses_.untold()) losses.push_back(write_loss(fbb, worker, why));
  return losses;
}

base::Status PartState::restore(const wire::PartState& state) {
  if (state.losses() != nullptr)
    for (const wire::Loss* loss : *state.losses()) losses_.restore(loss->worker(), read_loss(loss));
  constexpr uint32_t kMostNumbers = 1 << 24;
  if (state.numbers() > kMostNumbers) return base::error(MV_EPROTOCOL, "a copied part has {} tables", state.numbers());
  registry_.give_numbers(state.numbers());
  if (state.tables() == nullptr) return {};
  for (const wire::PartTable* table : *state.tables()) {
    if (table->spec() == nullptr || table->number() >= registry_.size())
      return base::error(MV_EPROTOCOL, "a table of a copied part has no spec or number");
    shard::Spec spec = read_spec(*table->spec());
    if (base::Status wrong = check_spec(spec); !wrong.ok()) return wrong;
    const auto added = registry_.add_copy(table->number(), std::make_shared<const shard::Spec>(std::move(spec)));
    if (!added.ok()) return added.status();
    if (table->updater() == nullptr) added.value()->shard.reset();
    if (base::Status wrong = added.value()->restore(*table); !wrong.ok()) return wrong;
  }
  return {};
}

}  // namespace mv::table
