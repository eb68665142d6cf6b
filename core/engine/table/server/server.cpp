#include "engine/table/server/server.hpp"

#include <algorithm>

namespace mv::table {

Server::Server(const base::Clock& clock, rpc::Server& rpc, base::Pool& pool, bool shares_memory)
    : rpc_(rpc),
      clock_(clock),
      held_(clock_),
      applier_(roster_, refusals_, pool),
      merger_(roster_, pool, held_, applier_, withheld_),
      answers_(rpc, roster_, pool),
      decisions_(rpc, clock_, held_, applier_, merger_, answers_, withheld_),
      registry_(rpc, roster_, refusals_, decisions_, shares_memory),
      changes_(rpc, clock_, roster_, pool, registry_, held_, applier_, withheld_),
      losses_(registry_),
      gets_(rpc, roster_, registry_, held_, losses_, answers_),
      many_requests_(rpc, clock_, roster_, registry_, held_, losses_, changes_, answers_),
      creations_(rpc, clock_, roster_, registry_, held_),
      beginnings_(rpc, clock_, roster_, registry_),
      queries_(rpc, pool, registry_),
      state_transfers_(rpc, registry_),
      part_state_(roster_, registry_, held_, creations_, answers_, state_transfers_, losses_),
      checkpoint_tables_(roster_, registry_),
      status_(clock_, roster_, registry_, held_, creations_) {}

void Server::worker_finished(base::Peer worker) {
  state_transfers_.forget(worker);
  roster_.ended(worker);
  losses_.told(worker);
  const int64_t id = roster_.view().worker_id(worker);
  for (uint32_t number = 0; number < registry_.size(); ++number) {
    Table* const table = registry_.at(number);
    if (table == nullptr) continue;
    if (id >= 0) table->finished(static_cast<size_t>(id));
    table->publish_clock();
    creations_.settle(number);
  }
}

void Server::worker_lost(base::Peer worker, const base::Status& why) {
  state_transfers_.forget(worker);
  if (!roster_.ended(worker)) return;
  const int64_t id = roster_.view().worker_id(worker);
  bool is_awaited = false;
  registry_.for_each([&](const Table& table) { is_awaited = is_awaited || (id >= 0 && table.counts_on(static_cast<size_t>(id))); });
  losses_.told(worker);
  if (is_awaited) losses_.note(roster_.active(), why);
  for (uint32_t number = 0; number < registry_.size(); ++number) {
    Table* const table = registry_.at(number);
    if (table == nullptr) continue;
    if (id >= 0)
      for (const base::Peer told : table->lost(static_cast<size_t>(id), why)) losses_.told(told);
    if (id >= 0 && table->shard != nullptr) table->shard->forget_pieces(id);
    table->publish_clock();
    if (!table->complete) creations_.break_off(number, why);
  }
  // The lost worker's parts of merged rounds still count.
  held_.forget_worker(worker, [&](const HeldChange& change) { return registry_.at(change.table)->consistency != shard::Consistency::kMerge; });
  answers_.forget(worker);
}

void Server::worker_joined(base::Peer worker) {
  if (!roster_.has_started()) return;
  const int64_t id = roster_.view().worker_id(worker);
  if (id < 0) return;
  roster_.replaced(static_cast<size_t>(id), worker);
  registry_.for_each([&](Table& table) { table.joined(static_cast<size_t>(id), roster_.worker_names()); });
}

std::shared_ptr<shard::Shard> Server::shard(uint32_t number) const {
  const Table* const table = registry_.at(number);
  return table != nullptr ? table->shard : nullptr;
}

bool Server::only_reads(uint32_t number, bool gated) const {
  const Table* const table = registry_.at(number);
  if (table == nullptr || table->shard == nullptr) return true;
  return (!gated || table->consistency == shard::Consistency::kAsync) && !table->has_lost_rounds() && !table->shard->keeps_backups() &&
         table->spec.capacity == 0;
}

bool Server::only_reads(const wire::Message& request) const {
  if (const auto* get = request.body_as_Get()) return only_reads(get->table(), get->gated());
  const auto* many = request.body_as_GetMany();
  if (many == nullptr) return false;
  return many->tables() == nullptr || std::ranges::all_of(*many->tables(), [&](uint32_t number) { return only_reads(number, many->gated()); });
}

bool Server::only_waits(uint32_t number) const {
  const Table* const table = registry_.at(number);
  return table != nullptr && table->shard != nullptr && table->consistency == shard::Consistency::kMerge && !table->has_lost_rounds() &&
         !table->shard->keeps_backups() && table->spec.capacity == 0;
}

bool Server::only_waits(base::Peer worker, const wire::Message& request) const {
  if (losses_.untold().contains(worker)) return false;
  if (const auto* get = request.body_as_Get()) return only_waits(get->table());
  const auto* many = request.body_as_GetMany();
  return many != nullptr && many->tables() != nullptr && std::ranges::all_of(*many->tables(), [&](uint32_t number) { return only_waits(number); });
}

bool Server::is_without_backups(uint32_t number) const {
  const Table* const table = registry_.at(number);
  return table != nullptr && !table->spec.has_backups();
}

/// Whether the request is about values of such tables only.
template <typename Which>
bool Server::is_about(const wire::Message& request, Which which) {
  const auto all_of = [&](const flatbuffers::Vector<uint32_t>* numbers) {
    return numbers != nullptr && numbers->size() > 0 && std::ranges::all_of(*numbers, which);
  };
  switch (request.body_type()) {
    case wire::Body::Change:
      return which(request.body_as_Change()->table());
    case wire::Body::Get:
      return which(request.body_as_Get()->table());
    case wire::Body::ChangeMany:
      return all_of(request.body_as_ChangeMany()->tables());
    case wire::Body::GetMany:
      return all_of(request.body_as_GetMany()->tables());
    case wire::Body::Got:
      return which(request.body_as_Got()->table());
    case wire::Body::Clock:
      return which(request.body_as_Clock()->table());
    case wire::Body::SetUpdater:
      return which(request.body_as_SetUpdater()->table());
    case wire::Body::States:
      return which(request.body_as_States()->table());
    case wire::Body::SetStates:
      return which(request.body_as_SetStates()->table());
    default:
      return false;
  }
}

bool Server::is_without_backups(const wire::Message& request) const {
  return is_about(request, [this](uint32_t number) { return is_without_backups(number); });
}

bool Server::is_gone(const wire::Message& request) const {
  return any_gone_ && is_about(request, [this](uint32_t number) {
           const Table* const table = registry_.at(number);
           return table != nullptr && !table->gone.ok();
         });
}

bool Server::any_without_backups() const {
  bool any = false;
  registry_.for_each([&](const Table& table) { any = any || !table.spec.has_backups(); });
  return any;
}

void Server::lose_without_backups(const base::Status& why) {
  registry_.for_each([&](Table& table) {
    if (!table.spec.has_backups()) lose(table, base::error(why.code(), "table \"{}\" has no back-ups: {}", table.spec.name, why.text()));
  });
}

void Server::lose_all(const base::Status& why) {
  registry_.for_each([&](Table& table) { lose(table, base::error(why.code(), "the values of table \"{}\" are lost: {}", table.spec.name, why.text())); });
}

void Server::lose(Table& table, const base::Status& why) {
  any_gone_ = true;
  if (!table.gone.ok()) return;
  table.gone = why;
  if (table.shard != nullptr) table.shard->close_to_readers();
}

bool Server::may_withhold(const rpc::Asked& asked, const wire::Message& request) const {
  const auto* change = request.body_as_Change();
  const Table* const table = change != nullptr ? registry_.at(change->table()) : nullptr;
  return table != nullptr && table->shard != nullptr && table->broken.ok() && table->gathers(*change) && table->has_rounds_of_several() &&
         !table->has_lost_rounds() && roster_.worker_id(asked.client) >= 0;
}

void Server::release(const rpc::Asked& asked) {
  const auto accepted_by = withheld_.release(asked);
  Table* const table = accepted_by ? registry_.at(*accepted_by) : nullptr;
  if (table != nullptr) decisions_.accept(*table, asked);
}

/// Keyed tables grow; devices need memory for what they compute.
bool Server::may_lack_memory(uint32_t number) const {
  const Table* const table = registry_.at(number);
  return table != nullptr && (table->spec.is_keyed() || table->spec.is_on_device());
}

bool Server::may_lack_memory(const wire::Message& request) const {
  if (request.body_type() == wire::Body::Create || request.body_type() == wire::Body::SetUpdater) return true;
  if (const auto* change = request.body_as_Change()) return may_lack_memory(change->table());
  const auto* many = request.body_as_ChangeMany();
  return many != nullptr && many->tables() != nullptr && std::ranges::any_of(*many->tables(), [this](uint32_t number) { return may_lack_memory(number); });
}

bool Server::may_lack_memory(const rpc::Asked& offered) const {
  const HeldChange* const change = held_.changes().find(offered);
  return change != nullptr && may_lack_memory(change->table);
}

void Server::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                        const base::SinkRef& staged) {
  switch (request.body_type()) {
    case wire::Body::Create:
      return creations_.create(asked, *request.body_as_Create(), payload);
    case wire::Body::Ready:
      return creations_.ready(asked, *request.body_as_Ready());
    case wire::Body::GiveUp:
      return creations_.give_up(asked, *request.body_as_GiveUp());
    case wire::Body::Open:
      return creations_.open(asked, *request.body_as_Open());
    case wire::Body::List:
      return queries_.list(asked);
    case wire::Body::Begin:
      return beginnings_.begin(asked, *request.body_as_Begin());
    case wire::Body::Destroy:
      return creations_.destroy(asked, *request.body_as_Destroy());
    case wire::Body::Change:
      return changes_.change(asked, *request.body_as_Change(), payload, staged);
    case wire::Body::Get:
      return gets_.get(asked, *request.body_as_Get(), payload);
    case wire::Body::ChangeMany:
      return many_requests_.change(asked, *request.body_as_ChangeMany(), payload, staged);
    case wire::Body::GetMany:
      return many_requests_.get(asked, *request.body_as_GetMany());
    case wire::Body::Got:
      return gets_.got(asked, *request.body_as_Got());
    case wire::Body::Clock:
      return changes_.clock(asked, *request.body_as_Clock());
    case wire::Body::SetUpdater:
      return changes_.set_updater(asked, *request.body_as_SetUpdater());
    case wire::Body::Stat:
      return queries_.stat(asked, *request.body_as_Stat());
    case wire::Body::Scan:
      return queries_.scan(asked, *request.body_as_Scan());
    case wire::Body::States:
      return state_transfers_.read(asked, *request.body_as_States());
    case wire::Body::SetStates:
      return state_transfers_.write(asked, *request.body_as_SetStates(), payload);
    default:
      return rpc_.fail(asked, base::error(MV_EPROTOCOL, "unknown request to a server: {}", wire::EnumNameBody(request.body_type())));
  }
}

void Server::on_cancel(const rpc::Asked& asked) {
  const uint32_t parts = answers_.parts_of(asked);
  for (uint32_t part = 1; part <= parts; ++part) cancel_held({asked.client, asked.seq, part});
  if (parts > 0) return;
  held_.table_of(asked) != nullptr ? cancel_held(asked) : creations_.cancel(asked);
}

void Server::cancel_held(const rpc::Asked& asked) {
  const uint32_t* const number = held_.table_of(asked);
  const int64_t worker = roster_.worker_id(asked.client);
  if (number == nullptr || worker < 0) return;
  Table& table = *registry_.at(*number);
  std::string missing;
  if (!table.withdraw(static_cast<size_t>(worker), asked, &missing)) return;
  held_.erase(asked);
  rpc_.fail(asked, base::error(MV_ETIMEOUT, "table \"{}\": {}", table.spec.name, missing));
}

}  // namespace mv::table
