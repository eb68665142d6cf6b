#include "engine/table/server/server.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "shard/updater/updater.hpp"

namespace mv::table {

namespace {
bool contains(const std::vector<base::Peer>& peers, base::Peer peer) { return std::ranges::find(peers, peer) != peers.end(); }
bool is_set(const flatbuffers::Vector<uint8_t>* flags, size_t at) { return flags != nullptr && at < flags->size() && flags->Get(static_cast<uint32_t>(at)) != 0; }
}  // namespace

void Server::start(const cluster::View& view, base::Peer self) {
  view_ = &view;
  sync_ = view.sync;
  servers_ = view.servers().size();
  index_ = static_cast<uint64_t>(std::max<int64_t>(0, view.server_id(self)));
  for (const cluster::Member* worker : view.workers()) {
    worker_ids_.emplace(worker->peer, workers_.size());
    workers_.push_back(worker->peer);
    if (worker->state == cluster::State::kHere) active_.insert(worker->peer);
  }
  name_workers();
}

void Server::name_workers() {
  auto names = std::make_shared<std::vector<std::string>>();
  for (const base::Peer worker : workers_) names->push_back(view_->name(worker));
  worker_names_ = std::move(names);
}

int64_t Server::worker_id(base::Peer peer) const {
  const auto found = worker_ids_.find(peer);
  return found != worker_ids_.end() ? static_cast<int64_t>(found->second) : -1;
}

void Server::worker_finished(base::Peer worker) {
  forget_transfers(worker);
  active_.erase(worker);
  const int64_t id = view_->worker_id(worker);
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    if (tables_[number] == nullptr) continue;
    if (id >= 0) tables_[number]->finished(static_cast<size_t>(id));
    tables_[number]->publish_clock();
    settle_creation(number);
  }
}

void Server::worker_lost(base::Peer worker, const base::Status& why) {
  forget_transfers(worker);
  if (active_.erase(worker) == 0) return;
  const int64_t id = view_->worker_id(worker);
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    if (tables_[number] == nullptr) continue;
    Table& table = *tables_[number];
    if (id >= 0) table.lost(static_cast<size_t>(id), why);
    if (id >= 0 && table.shard != nullptr) table.shard->forget_pieces(id);
    table.publish_clock();
    if (!table.complete) break_creation(number, why);
  }
  // The lost worker's parts of merged rounds still count.
  held_.erase_if([&](const rpc::Asked& asked, const Held& held) {
    return asked.client == worker && tables_[held.table]->consistency != shard::Consistency::kMerge;
  });
  wanted_.erase_if([&](const rpc::Asked& asked, const Wanted&) { return asked.client == worker; });
  std::erase_if(many_gets_, [&](const auto& entry) { return entry.first.client == worker; });
}

void Server::worker_joined(base::Peer worker) {
  if (view_ == nullptr) return;
  const int64_t id = view_->worker_id(worker);
  if (id < 0) return;
  workers_[static_cast<size_t>(id)] = worker;
  name_workers();
  worker_ids_.emplace(worker, static_cast<size_t>(id));
  active_.insert(worker);
  for (const auto& table : tables_) {
    if (table == nullptr) continue;
    if (table->consistency == shard::Consistency::kMerge) table->merge_gate.joined(static_cast<size_t>(id));
    if (table->consistency == shard::Consistency::kStale || table->consistency == shard::Consistency::kAsync) table->stale->joined(static_cast<size_t>(id));
    table->publish_clock();
  }
}

std::shared_ptr<shard::Shard> Server::shard(uint32_t number) const {
  return number < tables_.size() && tables_[number] != nullptr ? tables_[number]->shard : nullptr;
}

void Server::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                        const base::SinkRef& staged) {
  switch (request.body_type()) {
    case wire::Body::Create:
      return create(asked, *request.body_as_Create(), payload);
    case wire::Body::Ready:
      return ready(asked, *request.body_as_Ready());
    case wire::Body::GiveUp:
      return give_up(asked, *request.body_as_GiveUp());
    case wire::Body::Open:
      return open(asked, *request.body_as_Open());
    case wire::Body::List:
      return list(asked);
    case wire::Body::Destroy:
      return destroy(asked, *request.body_as_Destroy());
    case wire::Body::Change:
      return change(asked, *request.body_as_Change(), payload, staged);
    case wire::Body::Get:
      return get(asked, *request.body_as_Get(), payload);
    case wire::Body::ChangeMany:
      return change_many(asked, *request.body_as_ChangeMany(), payload, staged);
    case wire::Body::GetMany:
      return get_many(asked, *request.body_as_GetMany());
    case wire::Body::Got:
      return got(asked, *request.body_as_Got());
    case wire::Body::Clock:
      return clock(asked, *request.body_as_Clock());
    case wire::Body::SetUpdater:
      return set_updater(asked, *request.body_as_SetUpdater());
    case wire::Body::Stat:
      return stat(asked, *request.body_as_Stat());
    case wire::Body::Scan:
      return scan(asked, *request.body_as_Scan());
    case wire::Body::States:
      return states(asked, *request.body_as_States());
    case wire::Body::SetStates:
      return set_states(asked, *request.body_as_SetStates(), payload);
    default:
      return rpc_.fail(asked, base::error(MV_EPROTOCOL, "unknown request to a server: {}", wire::EnumNameBody(request.body_type())));
  }
}

// ---- creation

/// Creates all tables of the message, or none. An error with one of them ends the creation of all, for other workers as
/// well.
void Server::create(const rpc::Asked& asked, const wire::Create& request, std::span<const std::byte> payload) {
  if (request.specs() == nullptr || request.specs()->size() == 0) return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a table without a spec"));
  if (!active_.contains(asked.client)) return rpc_.fail(asked, base::error(MV_ESTATE, "only workers create tables"));
  std::vector<shard::Spec> specs;
  specs.reserve(request.specs()->size());
  for (const wire::TableSpec* spec : *request.specs()) specs.push_back(read_spec(*spec));
  std::vector<uint32_t> numbers;
  numbers.reserve(specs.size());
  base::expect_names(by_name_, specs.size());
  for (const shard::Spec& spec : specs) numbers.push_back(number_of(spec.name));
  base::Status wrong = check_creation(asked, request, specs, numbers);
  for (size_t i = 0; i < specs.size() && wrong.ok(); ++i) {
    if (numbers[i] != kNoTable) continue;
    numbers[i] = add_table(make_table(std::make_shared<const shard::Spec>(std::move(specs[i]))));
    wrong = std::exchange(tables_[numbers[i]]->broken, {});
  }
  if (wrong.ok()) wrong = take_initial(request, numbers, payload);
  if (!wrong.ok()) {
    give_up(asked.client, numbers, wrong);
    return rpc_.fail(asked, wrong);
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    Table& table = *tables_[numbers[i]];
    if (table.creators.empty()) table.creators.reserve(active_.size());
    if (!contains(table.creators, asked.client)) table.creators.push_back(asked.client);
    table.wants_initial = table.wants_initial || is_set(request.initial(), i);
  }
  answer_created(asked, numbers);
}

/// Changes nothing.
base::Status Server::check_creation(const rpc::Asked& asked, const wire::Create& request, std::span<const shard::Spec> specs,
                                    std::span<const uint32_t> numbers) const {
  for (const auto* flags : {request.holds(), request.initial(), request.values()})
    if (flags != nullptr && flags->size() != 0 && flags->size() != specs.size()) return base::error(MV_EPROTOCOL, "a creation whose lists differ in length");
  for (size_t i = 0; i < specs.size(); ++i) {
    const shard::Spec& spec = specs[i];
    if (numbers[i] == kNoTable) {
      if (base::Status wrong = check_spec(spec); !wrong.ok()) return wrong;
      continue;
    }
    const Table& table = *tables_[numbers[i]];
    if (!table.broken.ok()) return table.broken;
    // A complete table is from a checkpoint, or older than this worker: its updater's parameters may have changed.
    const bool agrees = table.complete ? table.spec.same_but_for_parameters(spec) : table.spec.same_shape(spec);
    if (!agrees)
      return base::error(MV_EDISAGREE, "table \"{}\": {} requests {}, {} {}", spec.name, view_->name(asked.client), spec.describe(),
                         table.complete ? "but it exists as" : "others request", table.spec.describe());
    if (is_set(request.holds(), i) && contains(table.creators, asked.client))
      return base::error(MV_EDISAGREE, "table \"{}\" already exists; mv_table_open() opens it", spec.name);
  }
  return {};
}

/// Stores worker 0's initial values of tables that are being created.
base::Status Server::take_initial(const wire::Create& request, std::span<const uint32_t> numbers, std::span<const std::byte> payload) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!is_set(request.values(), i)) continue;
    const Table& table = *tables_[numbers[i]];
    const uint64_t bytes = table.shard->elements() * table.spec.element_bytes();
    if (bytes > payload.size()) return base::error(MV_EPROTOCOL, "table \"{}\": its initial value has too few bytes", table.spec.name);
    if (!table.complete && bytes > 0) table.shard->change(shard::Write::Set, 0, 0, table.shard->elements(), payload.data());
    payload = payload.subspan(bytes);
  }
  return payload.empty() ? base::Status() : base::error(MV_EPROTOCOL, "a creation has {} bytes too many", payload.size());
}

void Server::give_up(const rpc::Asked& asked, const wire::GiveUp& request) {
  const auto code = static_cast<mv_status>(request.status());
  const std::string text = request.text() != nullptr ? request.text()->str() : "";
  if (request.tables() != nullptr && active_.contains(asked.client) && code != MV_OK)
    give_up(asked.client, {request.tables()->data(), request.tables()->size()}, base::Status(code, text));
  rpc_.answer(asked, builder_.answer({}));
}

/// The client knows that the creation of these tables has failed.
void Server::give_up(base::Peer client, std::span<const uint32_t> numbers, const base::Status& why) {
  for (const uint32_t number : numbers) {
    if (number >= tables_.size() || tables_[number] == nullptr || tables_[number]->complete) continue;
    Table& table = *tables_[number];
    if (!contains(table.told, client)) table.told.push_back(client);
    table.broken.ok() ? break_creation(number, why) : forget_if_all_told(number);
  }
}

std::unique_ptr<Server::Table> Server::make_table(shard::SpecRef spec, std::shared_ptr<shard::Shard> shard) {
  const shard::Consistency consistency = spec->consistency(sync_, workers_.size());
  auto table = std::make_unique<Table>(*this, static_cast<uint32_t>(tables_.size()), spec, consistency);
  auto made = shard != nullptr ? base::Result(std::move(shard)) : make_shard(std::move(spec));
  if (made.ok())
    table->shard = std::move(made).value();
  else
    table->broken = made.status();
  if (table->gate != nullptr) table->gate->set_workers(*worker_names_);
  else if (table->stale != nullptr) table->stale->set_workers(worker_names_);
  else table->merge_gate.set_workers(worker_names_);
  for (size_t id = 0; id < workers_.size(); ++id)
    if (!active_.contains(workers_[id])) table->finished(id);
  return table;
}

/// Returns the table's number; if its name is taken already, that table's.
uint32_t Server::add_table(std::unique_ptr<Table> table) {
  if (tables_.size() == tables_.capacity()) tables_.reserve(std::max<size_t>(16, 2 * tables_.size()));  // nothing may fail after emplace()
  const auto [named, is_new] = by_name_.emplace(table->spec.name, table->number);
  if (is_new) tables_.push_back(std::move(table));
  return named->second;
}

/// The table's number, or kNoTable. Workers create and load the same tables in the same order, so it usually is the
/// next one.
uint32_t Server::number_of(std::string_view name) {
  if (const uint32_t next = last_named_ + 1; next < tables_.size() && tables_[next] != nullptr && tables_[next]->spec.name == name)
    return last_named_ = next;
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return kNoTable;
  return last_named_ = known->second;
}

void Server::answer_created(const rpc::Asked& asked, std::span<const uint32_t> numbers, const shard::Spec* opened) {
  auto& fbb = builder_.fbb();
  const int64_t worker = worker_id(asked.client);
  std::vector<wire::CreatedTable> created;
  created.reserve(numbers.size());
  for (const uint32_t number : numbers) {
    const Table& table = *tables_[number];
    created.emplace_back(worker >= 0 ? table.clock_of(static_cast<size_t>(worker)) : 0, number, table.complete);
  }
  const auto spec = opened != nullptr ? write_spec(fbb, *opened) : flatbuffers::Offset<wire::TableSpec>();
  const auto tables = fbb.CreateVectorOfStructs(created);
  rpc_.answer(asked, builder_.finish(wire::Body::Created, wire::CreateCreated(fbb, tables, spec)));
}

void Server::ready(const rpc::Asked& asked, const wire::Ready& request) {
  if (request.tables() == nullptr) return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a readiness message without tables"));
  for (const uint32_t number : *request.tables()) {
    Table* table = find(asked, number);
    if (table == nullptr) return;
    if (table->broken.ok()) continue;
    const base::Status broken = table->broken;
    give_up(asked.client, {&number, 1}, broken);
    return rpc_.fail(asked, broken);
  }
  const auto readying = readying_.emplace(asked, Readying{clock_.now(), {request.tables()->begin(), request.tables()->end()}}).first;
  const std::vector<uint32_t> numbers = readying->second.tables;
  readying->second.missing = 1;  // until all of them are checked
  for (const uint32_t number : numbers) {
    Table& table = *tables_[number];
    if (table.complete) continue;  // this worker replaces a lost one
    const auto before = std::ranges::find(table.ready, asked.client, &rpc::Asked::client);
    if (before != table.ready.end() && *before == asked) continue;
    if (before != table.ready.end())  // it gave up, and tries again
      end_readying(rpc::Asked(*before), base::error(MV_ETIMEOUT, "table \"{}\": requested again", table.spec.name));
    if (table.ready.empty()) table.ready.reserve(active_.size());
    table.ready.push_back(asked);
    ++readying->second.missing;
  }
  for (const uint32_t number : numbers) {
    if (!readying_.contains(asked)) return;  // the creation of one of them failed
    settle_creation(number);
  }
  if (const auto still = readying_.find(asked); still != readying_.end() && --still->second.missing == 0) end_readying(asked, {});
}

/// Reports the end of its creation to the worker.
void Server::end_readying(const rpc::Asked& asked, const base::Status& status) {
  const auto found = readying_.find(asked);
  if (found == readying_.end()) return;
  const Readying ended = std::move(found->second);
  readying_.erase(found);
  if (status.ok()) return rpc_.answer(asked, builder_.answer({}));
  for (const uint32_t number : ended.tables)
    if (tables_[number] != nullptr) std::erase(tables_[number]->ready, asked);
  rpc_.fail(asked, status);
}

void Server::settle_creation(uint32_t number) {
  if (tables_[number] == nullptr) return;
  Table& table = *tables_[number];
  if (table.complete || !table.broken.ok() || table.ready.empty() || table.ready.size() < active_.size()) return;
  if (!std::ranges::all_of(active_, [&](base::Peer worker) { return std::ranges::find(table.ready, worker, &rpc::Asked::client) != table.ready.end(); })) return;
  if (table.wants_initial && !contains(table.creators, workers_.front()))
    return break_creation(number, base::error(MV_ESTATE, "table \"{}\": worker 0, which gives the initial value, is gone; create the table without one, then set it", table.spec.name));
  table.complete = true;
  for (const rpc::Asked& asked : std::exchange(table.ready, {}))
    if (const auto waiting = readying_.find(asked); waiting != readying_.end() && --waiting->second.missing == 0) end_readying(asked, {});
}

void Server::break_creation(uint32_t number, const base::Status& why) {
  Table& table = *tables_[number];
  if (!table.broken.ok() || table.complete) return;
  table.broken = why;
  for (const rpc::Asked& asked : std::exchange(table.ready, {})) {
    if (!contains(table.told, asked.client)) table.told.push_back(asked.client);
    end_readying(asked, why);
  }
  forget_if_all_told(number);
}

/// Frees the name once no worker can mistake the failed creation for a new one.
void Server::forget_if_all_told(uint32_t number) {
  const Table& table = *tables_[number];
  if (std::ranges::all_of(active_, [&](base::Peer worker) { return contains(table.told, worker); })) drop(number);
}

/// Removes the table and all that waits for it, and frees its name.
void Server::drop(uint32_t number) {
  held_.erase_if([&](const rpc::Asked&, const Held& held) { return held.table == number; });
  wanted_.erase_if([&](const rpc::Asked&, const Wanted& wanted) { return wanted.table == number; });
  by_name_.erase(tables_[number]->spec.name);
  tables_[number].reset();
}

/// Fails everything that waits at this table's gate, in the order of the clients and their calls.
void Server::fail_waiting(uint32_t number, const base::Status& why) {
  std::set<rpc::Asked> waiting;
  const auto note = [&](const rpc::Asked& asked, const auto& one) {
    if (one.table == number) waiting.insert(asked);
  };
  held_.for_each(note);
  wanted_.for_each(note);
  for (const rpc::Asked& asked : waiting) {
    held_.erase(asked);
    wanted_.erase(asked);
    rpc_.fail(asked, why);
  }
}

void Server::open(const rpc::Asked& asked, const wire::Open& request) {
  const std::string name = request.name() != nullptr ? request.name()->str() : "";
  const uint32_t number = number_of(name);
  if (number == kNoTable || !tables_[number]->complete) return rpc_.fail(asked, base::error(MV_ENOTFOUND, "there is no table \"{}\"", name));
  answer_created(asked, {&number, 1}, &tables_[number]->spec);
}

void Server::list(const rpc::Asked& asked) {
  auto& fbb = builder_.fbb();
  std::vector<flatbuffers::Offset<wire::TableSpec>> specs;
  for (const Table* table : complete_tables()) specs.push_back(write_spec(fbb, table->spec));
  const auto vector = fbb.CreateVector(specs);
  rpc_.answer(asked, builder_.finish(wire::Body::Listing, wire::CreateListing(fbb, vector)));
}

void Server::destroy(const rpc::Asked& asked, const wire::Destroy& request) {
  Table* table = find(asked, request.table());
  if (table == nullptr) return;
  const base::Status gone = base::error(MV_ENOTFOUND, "table \"{}\" was destroyed by {}", table->spec.name, view_->name(asked.client));
  if (table->shard != nullptr) table->shard->destroy();
  fail_waiting(request.table(), gone);
  for (const rpc::Asked& waiting : std::exchange(table->ready, {})) end_readying(waiting, gone);
  drop(request.table());
  rpc_.answer(asked, builder_.answer({}));
}

std::string Server::missing_creators(const Table& table) const {
  std::string names;
  for (const base::Peer peer : active_)
    if (std::ranges::find(table.ready, peer, &rpc::Asked::client) == table.ready.end()) names += (names.empty() ? "" : ", ") + view_->name(peer);
  return names;
}

// ---- changes and gets

Server::Table* Server::find(const rpc::Asked& asked, uint32_t number) {
  if (number < tables_.size() && tables_[number] != nullptr) return tables_[number].get();
  rpc_.fail(asked, base::error(MV_ENOTFOUND, "the table was destroyed"));
  return nullptr;
}

/// Finds a table that has its part of the values.
Server::Table* Server::find_sound(const rpc::Asked& asked, uint32_t number) {
  Table* table = find(asked, number);
  if (table == nullptr || (table->broken.ok() && table->shard != nullptr)) return table;
  rpc_.fail(asked, table->broken);
  return nullptr;
}

base::Status Server::check_range(const Table& table, uint64_t first, uint64_t count, uint64_t rows) const {
  const uint64_t elements = table.shard->elements();
  if (count > elements || first > elements - count || rows > wire::kMaxPayloadBytes / 8)
    return base::error(MV_EPROTOCOL, "table \"{}\": elements {} .. {} are outside a shard of {}", table.spec.name, first, first + count, elements);
  return {};
}

/// The row ids at the start of a payload, copied before they are checked: its sender may still be able to write the
/// memory.
base::Result<std::vector<int64_t>> Server::take_rows(const Table& table, std::span<const std::byte> payload, uint64_t rows) const {
  if (payload.size() < rows * sizeof(int64_t))
    return base::error(MV_EPROTOCOL, "table \"{}\": {} row ids do not fit in {} bytes", table.spec.name, rows, payload.size());
  std::vector<int64_t> ids(rows);
  std::memcpy(ids.data(), payload.data(), rows * sizeof(int64_t));
  const auto end = static_cast<int64_t>(table.shard->rows().count);
  const auto fits = [&](int64_t row) {
    if (!table.spec.is_keyed()) return row >= 0 && row < end;
    return table.spec.has_row(row) && shard::server_of(table.spec, servers_, row) == index_;
  };
  const auto bad = std::find_if_not(ids.begin(), ids.end(), fits);
  if (bad != ids.end()) return base::error(MV_ERANGE, "table \"{}\": row {} is not in this shard", table.spec.name, *bad);
  return ids;
}

/// The size of a change's payload.
uint64_t Server::Table::bytes_of(const Held& held) const {
  if (held.codec != nullptr) return held.codec->encoded_bytes(held.count);
  if (held.rows == 0) return held.count * spec.element_bytes();
  return held.rows * (sizeof(int64_t) + (held.write == wire::Write::Erase ? 0 : spec.row_bytes()));
}

void Server::change(const rpc::Asked& asked, const wire::Change& request, std::span<const std::byte> payload,
                    const base::SinkRef& staged) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  base::Status wrong = check_range(*table, request.first(), request.count(), request.rows());
  const bool erases = request.write() == wire::Write::Erase;
  if (wrong.ok() && erases && (request.count() > 0 || !table->spec.is_keyed()))
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": only rows of keyed tables can be erased", table->spec.name);
  const auto codec = table->codec_of(request.codec(), request.rows());
  if (wrong.ok() && !codec.ok()) wrong = codec.status();
  if (wrong.ok() && codec.value() != nullptr && request.write() != wire::Write::Add)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": only adds can be encoded", table->spec.name);
  if (!wrong.ok()) return rpc_.fail(asked, wrong);

  const auto piece = request.number() == 0 ? shard::ChangePart::kFirst : shard::ChangePart::kFurther;
  Held held{request.first(), request.count(), request.rows(), payload, staged, request.write(), piece};
  held.codec = codec.value();
  const uint64_t bytes = table->bytes_of(held);
  const bool here = request.offered() == 0;
  if ((here ? payload.size() : request.offered()) != bytes)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": a change of {} bytes has a payload of {}", table->spec.name, bytes, payload.size());
  if (wrong.ok() && here && held.codec != nullptr) wrong = held.codec->check(payload, held.count);
  const int64_t worker = worker_id(asked.client);
  const bool counted = table->consistency == shard::Consistency::kSync && request.write() == wire::Write::Add && worker >= 0;
  if (wrong.ok() && !here && !counted)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": a change offers values that the server would never request", table->spec.name);
  if (!wrong.ok()) return rpc_.fail(asked, wrong);

  if (table->consistency == shard::Consistency::kMerge && request.write() == wire::Write::Add && worker >= 0)
    return change_merged(asked, *table, static_cast<size_t>(worker), request.index(), request.chunks(), std::move(held));
  if (!counted) return change_in_order(asked, *table, std::move(held));
  if (here && request.rows() > 0) {
    const auto rows = take_rows(*table, payload, request.rows());
    if (!rows.ok()) return rpc_.fail(asked, rows.status());
  }
  hold(held, payload, staged);
  held_back(*table, asked, std::move(held));
  table->gate->change(static_cast<size_t>(worker), asked, {request.round(), request.index()}, request.chunks(), bytes, here);
}

/// Applies a change that sync mode does not count: at once, but not before its worker's earlier adds.
void Server::change_in_order(const rpc::Asked& asked, Table& table, Held held) {
  const int64_t worker = worker_id(asked.client);
  if (table.consistency == shard::Consistency::kSync && worker >= 0 && table.gate->follow(static_cast<size_t>(worker), asked)) {
    hold(held, held.payload, held.keep);
    return held_back(table, asked, std::move(held));
  }
  const base::Status status = apply(table, asked.client, held);
  status.ok() ? rpc_.finish(asked) : rpc_.fail(asked, status);
}

void Server::held_back(Table& table, const rpc::Asked& asked, Held held) {
  held.since = now();
  held.table = table.number;
  held_.insert(asked, std::move(held));
}

/// Keeps a payload until its turn comes. Copies it if its memory is only valid during the call.
void Server::hold(Held& held, std::span<const std::byte> payload, const std::shared_ptr<const void>& staged) {
  held.payload = payload;
  held.keep = staged;
  if (staged != nullptr || payload.empty()) return;
  const base::Pool::Block copy = pool_.take(payload.size());
  std::memcpy(copy.bytes.data(), payload.data(), payload.size());
  held.payload = copy.bytes;
  held.keep = copy.memory;
}

void Server::on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) {
  Held* const found = held_.find(asked);
  if (found == nullptr) return;
  Held& held = *found;
  Table& table = *tables_[held.table];
  const bool sound = payload.size() == table.bytes_of(held) && (held.rows == 0 || take_rows(table, payload, held.rows).ok()) &&
                     (held.codec == nullptr || held.codec->check(payload, held.count).ok());
  if (!sound) held.rows = held.count = 0;  // the client breaks the protocol: its add counts as nothing, the others go on
  hold(held, sound ? payload : std::span<const std::byte>(), sound ? staged : nullptr);
  table.gate->data(static_cast<size_t>(worker_id(asked.client)), asked);
}

base::Status Server::apply(Table& table, base::Peer client, const Held& held) {
  shard::Shard& shard = *table.shard;
  if (held.updater != nullptr) return shard.set_updater(*held.updater);
  const wire::Write write = held.write;
  const shard::Worker worker = worker_id(client);
  try {
    if (held.rows > 0) {
      const auto rows = take_rows(table, held.payload, held.rows);
      if (!rows.ok()) return rows.status();
      const std::byte* values = write == wire::Write::Erase ? nullptr : held.payload.data() + held.rows * sizeof(int64_t);
      shard.change_rows(write, worker, rows.value(), values, held.piece);
    } else if (held.count > 0 && held.codec != nullptr) {
      return apply_encoded(table, worker, held);
    } else if (held.count > 0) {
      shard.change(write, worker, held.first, held.count, held.payload.data(), held.piece);
    } else if (write == wire::Write::Add) {
      shard.change_rows(write, worker, {}, nullptr, held.piece);
    }
  } catch (const shard::Halfway&) {
    throw;  // breaks the node down: the content of the table is unknown
  } catch (const std::bad_alloc&) {
    if (!table.spec.is_keyed()) throw;
    // A keyed table grows with its input. The server goes on without these rows.
    return base::error(MV_ENOMEM, "table \"{}\": server {} has no memory for more rows", table.spec.name, index_);
  }
  return {};
}

void Server::get(const rpc::Asked& asked, const wire::Get& request, std::span<const std::byte> payload) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  base::Status wrong = check_range(*table, request.first(), request.count(), request.rows());
  const uint64_t bytes = request.rows() > 0 ? request.rows() * table->spec.row_bytes() : request.count() * table->spec.element_bytes();
  if (wrong.ok() && bytes > wire::kMaxPayloadBytes)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": {} bytes requested in one answer, at most {} allowed", table->spec.name, bytes, wire::kMaxPayloadBytes);
  if (!wrong.ok()) return rpc_.fail(asked, wrong);
  if (const auto lost = table->lost_rounds.extract(asked.client)) return rpc_.fail(asked, lost.mapped());
  auto codec = table->codec_of(request.codec(), request.rows());
  if (!codec.ok()) return rpc_.fail(asked, codec.status());
  Wanted wanted{request.first(), request.count(), {}};
  wanted.codec = std::move(codec).value();
  if (request.rows() > 0) {
    auto rows = take_rows(*table, payload, request.rows());
    if (!rows.ok()) return rpc_.fail(asked, rows.status());
    wanted.ids = std::move(rows).value();
  }
  const int64_t worker = worker_id(asked.client);
  if (table->consistency == shard::Consistency::kAsync || !request.gated() || worker < 0) return reply_values(asked, *table, wanted);
  wanted.since = now();
  wanted.table = table->number;
  wanted_.insert(asked, std::move(wanted));
  if (table->consistency == shard::Consistency::kStale) return table->stale->get(asked, request.clock());
  if (table->consistency == shard::Consistency::kMerge) return table->merge_gate.get(asked, request.clock());
  table->gate->get(static_cast<size_t>(worker), asked, {request.round(), request.index()});
}

void Server::reply_values(const rpc::Asked& asked, Table& table, const Wanted& wanted) {
  if (asked.part != 0) return give_part(asked, table);
  const bool by_row = !wanted.ids.empty();
  const uint64_t bytes = by_row ? wanted.ids.size() * table.spec.row_bytes() : wanted.count * table.spec.element_bytes();
  if (bytes == 0)  // sent only to be counted: none of the rows are here
    return rpc_.answer(asked, builder_.finish(wire::Body::Reply, wire::CreateReply(builder_.fbb())));
  // A copy, so that changes made while the answer is being sent don't show in it: a get is atomic per stripe.
  base::Pool::Block block;
  try {
    block = pool_.take(bytes);
    const shard::Worker worker = worker_id(asked.client);
    if (by_row)
      table.shard->read_rows(worker, wanted.ids, block.bytes.data());
    else
      table.shard->read(worker, wanted.first, wanted.count, block.bytes.data());
    if (wanted.codec != nullptr) block = encode_values(table, wanted, block);
  } catch (const std::bad_alloc&) {
    return rpc_.fail(asked, base::error(MV_ENOMEM, "table \"{}\": server {} has no memory for the answer", table.spec.name, index_));
  }
  const auto values = base::Payload::kept(block.bytes, block.memory);
  rpc_.answer(asked, builder_.finish(wire::Body::Reply, wire::CreateReply(builder_.fbb()), values));
}

void Server::got(const rpc::Asked& asked, const wire::Got& request) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  rpc_.finish(asked);
  const int64_t worker = worker_id(asked.client);
  if (table->consistency == shard::Consistency::kSync && worker >= 0) table->gate->got(static_cast<size_t>(worker), request.round());
}

void Server::clock(const rpc::Asked& asked, const wire::Clock& request) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  rpc_.finish(asked);
  const int64_t worker = worker_id(asked.client);
  if (worker < 0) return;
  if (table->consistency == shard::Consistency::kMerge)
    table->merge_gate.begins(static_cast<size_t>(worker), request.clock());
  else if (table->consistency != shard::Consistency::kSync)
    table->stale->clock(static_cast<size_t>(worker), request.clock());
  table->publish_clock();
  table->moved = now();
}

void Server::Table::finished(size_t worker) {
  if (consistency == shard::Consistency::kSync)
    gate->finished(worker);
  else if (consistency == shard::Consistency::kMerge)
    merge_gate.finished(worker);
  else
    stale->finished(worker);
}

void Server::Table::lost(size_t worker, const base::Status& why) {
  if (consistency == shard::Consistency::kSync)
    gate->lost(worker, why);
  else if (consistency == shard::Consistency::kMerge)
    merge_gate.lost(worker, why);
  else
    stale->lost(worker, why);
}

void Server::Table::publish_clock() {
  if (shard == nullptr || (consistency != shard::Consistency::kStale && consistency != shard::Consistency::kMerge)) return;
  const uint64_t clock = consistency == shard::Consistency::kMerge ? merge_gate.merged() : stale->least();
  shard->least_clock.store(clock, std::memory_order_release);
  shard->publish_clock(clock);
}

// ---- whole tables

void Server::set_updater(const rpc::Asked& asked, const wire::SetUpdater& request) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  const shard::UpdaterSpec updater = read_updater(request.updater());
  if (const base::Status wrong = shard::check_updater(updater, table->spec.dtype); !wrong.ok()) return rpc_.fail(asked, wrong);
  Held held{0, 0, 0, {}, nullptr};
  held.updater = std::make_shared<const shard::UpdaterSpec>(updater);
  change_in_order(asked, *table, std::move(held));
}

void Server::stat(const rpc::Asked& asked, const wire::Stat& request) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  const shard::Usage usage = table->shard->usage();
  const auto updater = write_updater(builder_.fbb(), table->shard->updater());
  const auto stats = wire::CreateStats(builder_.fbb(), usage.stored, usage.memory_bytes, usage.state_bytes, updater, usage.updates);
  rpc_.answer(asked, builder_.finish(wire::Body::Stats, stats));
}

void Server::scan(const rpc::Asked& asked, const wire::Scan& request) {
  Table* table = find_sound(asked, request.table());
  if (table == nullptr) return;
  if (!table->spec.is_keyed())
    return rpc_.fail(asked, base::error(MV_EINVAL, "table \"{}\" is {}: only keyed tables can be scanned", table->spec.name, table->spec.describe()));
  const uint64_t bytes_each = sizeof(int64_t) + (request.values() ? table->spec.row_bytes() : 0);
  const uint64_t most = std::min<uint64_t>(request.most(), shard::kStripeBytes / bytes_each);
  auto scanned = table->shard->scan(request.cursor(), std::max<uint64_t>(1, most), request.values());
  if (!scanned.ok()) return rpc_.fail(asked, scanned.status());
  const shard::Scanned& found = scanned.value();
  base::PayloadRef payload;
  if (!found.rows.empty()) {
    const size_t ids_bytes = found.rows.size() * sizeof(int64_t);
    base::Pool::Block block = pool_.take(ids_bytes + found.values.size());
    std::memcpy(block.bytes.data(), found.rows.data(), ids_bytes);
    if (!found.values.empty()) std::memcpy(block.bytes.data() + ids_bytes, found.values.data(), found.values.size());
    payload = base::Payload::kept(block.bytes, block.memory);
  }
  rpc_.answer(asked, builder_.finish(wire::Body::Scanned, wire::CreateScanned(builder_.fbb(), found.rows.size(), found.next), payload));
}

void Server::on_cancel(const rpc::Asked& asked) {
  const auto many = many_gets_.find(asked);
  if (many == many_gets_.end()) return held_.find(asked) != nullptr || wanted_.find(asked) != nullptr ? cancel_waiting(asked) : cancel_creation(asked);
  const auto parts = static_cast<uint32_t>(many->second.at.size());
  for (uint32_t part = 1; part <= parts; ++part) cancel_waiting({asked.client, asked.seq, part});
}

void Server::cancel_waiting(const rpc::Asked& asked) {
  const Held* const held = held_.find(asked);
  const Wanted* const wanted = wanted_.find(asked);
  if (held == nullptr && wanted == nullptr) return;
  const int64_t worker = worker_id(asked.client);
  if (worker < 0) return;
  Table& table = *tables_[held != nullptr ? held->table : wanted->table];
  std::string missing;
  const bool withdrawn = table.consistency == shard::Consistency::kStale   ? table.stale->withdraw(asked, &missing)
                         : table.consistency == shard::Consistency::kMerge ? table.merge_gate.withdraw(asked, &missing)
                                                             : table.gate->withdraw(static_cast<size_t>(worker), asked, &missing);
  if (!withdrawn) return;
  held_.erase(asked);
  wanted_.erase(asked);
  rpc_.fail(asked, base::error(MV_ETIMEOUT, "table \"{}\": {}", table.spec.name, missing));
}

void Server::cancel_creation(const rpc::Asked& asked) {
  const auto found = readying_.find(asked);
  if (found == readying_.end()) return;
  base::Status why;
  for (const uint32_t number : found->second.tables) {
    Table& table = *tables_[number];
    if (table.complete) continue;
    if (why.ok()) why = base::error(MV_ETIMEOUT, "table \"{}\": not created yet by {}", table.spec.name, missing_creators(table));
    std::erase(table.creators, asked.client);
  }
  end_readying(asked, why);
}

// ---- decisions of the gates

void Server::Table::apply_change(const rpc::Asked& asked) {
  const Held* const found = server.held_.find(asked);
  if (found == nullptr) return;
  const base::Status status = server.apply(*this, asked.client, *found);
  moved = server.now();
  server.gate_log_.released(wire::Body::Change, asked.client, found->since, moved);
  server.held_.erase(asked);
  status.ok() ? server.rpc_.finish(asked) : server.rpc_.fail(asked, status);
}

void Server::Table::grant_change(const rpc::Asked& asked) { server.rpc_.grant(asked); }

void Server::Table::serve_get(const rpc::Asked& asked) {
  Wanted* const found = server.wanted_.find(asked);
  if (found == nullptr) return;
  const Wanted values = std::move(*found);
  server.wanted_.erase(asked);
  moved = server.now();
  server.gate_log_.released(wire::Body::Get, asked.client, values.since, moved);
  server.reply_values(asked, *this, values);
}

void Server::Table::fail_gated(const rpc::Asked& asked, const base::Status& why) {
  server.held_.erase(asked);
  server.wanted_.erase(asked);
  moved = server.now();
  server.rpc_.fail(asked, why);
}

}  // namespace mv::table
