#include "engine/ps/server.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"

namespace mv::ps {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kNoticeAfter = 10s;
constexpr base::Nanos kLook = 1s;
}  // namespace

table::Spec read_spec(const wire::TableSpec& wire) {
  table::Spec spec;
  if (wire.name() != nullptr) spec.name = wire.name()->str();
  spec.kind = static_cast<int32_t>(wire.kind());
  spec.dtype = static_cast<mv_dtype>(wire.dtype());
  spec.rows = wire.rows();
  spec.cols = wire.cols();
  spec.flags = wire.flags();
  return spec;
}

flatbuffers::Offset<wire::TableSpec> write_spec(flatbuffers::FlatBufferBuilder& fbb, const table::Spec& spec) {
  return wire::CreateTableSpecDirect(fbb, spec.name.c_str(), static_cast<wire::TableKind>(spec.kind), static_cast<wire::DType>(spec.dtype),
                                     spec.rows, spec.cols, spec.flags);
}

void Server::start(const cluster::View& view, base::Peer self) {
  view_ = &view;
  counts_ = view.sync && view.workers().size() > 1;
  servers_ = view.servers().size();
  index_ = static_cast<uint64_t>(std::max<int64_t>(0, view.server_id(self)));
  for (const cluster::Member* worker : view.workers()) {
    worker_ids_.emplace(worker->peer, workers_.size());
    workers_.push_back(worker->peer);
    if (worker->state == cluster::State::kHere) active_.insert(worker->peer);
  }
}

int64_t Server::worker_id(base::Peer peer) const {
  const auto found = worker_ids_.find(peer);
  return found != worker_ids_.end() ? static_cast<int64_t>(found->second) : -1;
}

void Server::worker_finished(base::Peer worker) {
  active_.erase(worker);
  const int64_t id = view_->worker_id(worker);
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    if (tables_[number] == nullptr) continue;
    if (counts_ && id >= 0) tables_[number]->gate.finished(static_cast<size_t>(id));
    settle_creation(number);
  }
}

void Server::worker_lost(base::Peer worker, const base::Status& why) {
  if (active_.erase(worker) == 0) return;
  const int64_t id = view_->worker_id(worker);
  for (uint32_t number = 0; number < tables_.size(); ++number) {
    if (tables_[number] == nullptr) continue;
    Table& table = *tables_[number];
    if (counts_ && id >= 0) table.gate.lost(static_cast<size_t>(id), why);
    std::erase_if(table.held, [&](const auto& entry) { return entry.first.client == worker; });
    std::erase_if(table.wanted, [&](const auto& entry) { return entry.first.client == worker; });
    if (!table.complete) break_creation(number, why);
  }
}

void Server::worker_joined(base::Peer worker) {
  if (view_ == nullptr) return;
  const int64_t id = view_->worker_id(worker);
  if (id < 0) return;
  workers_[static_cast<size_t>(id)] = worker;
  worker_ids_.emplace(worker, static_cast<size_t>(id));
  active_.insert(worker);
}

std::shared_ptr<table::Shard> Server::shard(uint32_t number) const {
  return number < tables_.size() && tables_[number] != nullptr ? tables_[number]->shard : nullptr;
}

void Server::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                        const base::SinkRef& staged) {
  switch (request.body_type()) {
    case wire::Body::Create:
      return create(asked, *request.body_as_Create());
    case wire::Body::Ready:
      return ready(asked, *request.body_as_Ready());
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
    case wire::Body::Got:
      return got(asked, *request.body_as_Got());
    default:
      return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a server does not understand {}", wire::EnumNameBody(request.body_type())));
  }
}

// ---- creation

void Server::create(const rpc::Asked& asked, const wire::Create& request) {
  if (request.spec() == nullptr) return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a table without a spec"));
  if (!active_.contains(asked.client)) return rpc_.fail(asked, base::error(MV_ESTATE, "only workers create tables"));
  const table::Spec spec = read_spec(*request.spec());
  const auto known = by_name_.find(spec.name);
  if (known == by_name_.end()) {
    const bool sane = (spec.dtype == MV_F32 || spec.dtype == MV_F64) && spec.rows > 0 && spec.cols > 0 &&
                      spec.rows <= (UINT64_C(1) << 62) / spec.cols / 8;
    if (!sane) return rpc_.fail(asked, base::error(MV_EPROTOCOL, "table \"{}\": a spec that no client sends", spec.name));
    auto shard = table::Shard::make(spec, table::part_of(spec.rows, servers_, index_));
    auto table = std::make_unique<Table>(*this, spec);
    if (shard.ok())
      table->shard = std::move(shard).value();
    else
      table->broken = shard.status();
    std::vector<std::string> names;
    for (const base::Peer worker : workers_) names.push_back(view_->name(worker));
    table->gate.set_workers(std::move(names));
    for (size_t id = 0; id < workers_.size(); ++id)
      if (!active_.contains(workers_[id])) table->gate.finished(id);
    by_name_.emplace(spec.name, static_cast<uint32_t>(tables_.size()));
    tables_.push_back(std::move(table));
  }
  const uint32_t number = by_name_.at(spec.name);
  Table& table = *tables_[number];
  if (table.broken.ok() && !table.spec.same_shape(spec))
    break_creation(number, base::error(MV_EDISAGREE, "table \"{}\": {} asks for {}, others for {}", spec.name, view_->name(asked.client),
                                       spec.describe(), table.spec.describe()));
  if (!table.broken.ok()) {
    table.told.insert(asked.client);
    rpc_.fail(asked, table.broken);
    return forget_if_all_told(number);
  }
  if (!table.creators.insert(asked.client).second && request.holds())
    return rpc_.fail(asked, base::error(MV_EDISAGREE, "table \"{}\" exists already; mv_table_open() gives a handle on it", spec.name));
  answer_created(asked, number);
}

void Server::answer_created(const rpc::Asked& asked, uint32_t number) {
  auto& fbb = builder_.fbb();
  const auto written = write_spec(fbb, tables_[number]->spec);
  rpc_.answer(asked, builder_.finish(wire::Body::Created, wire::CreateCreated(fbb, number, written, tables_[number]->complete)));
}

void Server::ready(const rpc::Asked& asked, const wire::Ready& request) {
  Table* table = find(asked, request.table());
  if (table == nullptr) return;
  if (!table->broken.ok()) {
    table->told.insert(asked.client);
    rpc_.fail(asked, table->broken);
    return forget_if_all_told(request.table());
  }
  if (table->complete) return rpc_.answer(asked, builder_.answer({}));  // a worker in the place of a lost one
  if (const auto before = table->ready.find(asked.client); before != table->ready.end())  // it gave up, and tries again
    rpc_.fail(before->second, base::error(MV_ETIMEOUT, "table \"{}\": asked for again", table->spec.name));
  table->ready.insert_or_assign(asked.client, asked);
  watch();
  settle_creation(request.table());
}

void Server::settle_creation(uint32_t number) {
  Table& table = *tables_[number];
  if (table.complete || !table.broken.ok() || table.ready.empty()) return;
  if (!std::all_of(active_.begin(), active_.end(), [&](base::Peer worker) { return table.ready.contains(worker); })) return;
  table.complete = true;
  for (const auto& [worker, asked] : std::exchange(table.ready, {})) rpc_.answer(asked, builder_.answer({}));
}

void Server::break_creation(uint32_t number, const base::Status& why) {
  Table& table = *tables_[number];
  if (!table.broken.ok() || table.complete) return;
  table.broken = why;
  for (const auto& [worker, asked] : std::exchange(table.ready, {})) {
    table.told.insert(worker);
    rpc_.fail(asked, why);
  }
  forget_if_all_told(number);
}

/// The name is free again once nobody can mistake the failed creation for a new one.
void Server::forget_if_all_told(uint32_t number) {
  Table& table = *tables_[number];
  if (!std::all_of(active_.begin(), active_.end(), [&](base::Peer worker) { return table.told.contains(worker); })) return;
  by_name_.erase(table.spec.name);
  tables_[number].reset();
}

void Server::open(const rpc::Asked& asked, const wire::Open& request) {
  const std::string name = request.name() != nullptr ? request.name()->str() : "";
  const auto known = by_name_.find(name);
  if (known == by_name_.end() || !tables_[known->second]->complete)
    return rpc_.fail(asked, base::error(MV_ENOTFOUND, "there is no table \"{}\"", name));
  answer_created(asked, known->second);
}

void Server::list(const rpc::Asked& asked) {
  auto& fbb = builder_.fbb();
  std::vector<flatbuffers::Offset<wire::TableSpec>> specs;
  for (const auto& [name, number] : by_name_)
    if (tables_[number]->complete) specs.push_back(write_spec(fbb, tables_[number]->spec));
  const auto vector = fbb.CreateVector(specs);
  rpc_.answer(asked, builder_.finish(wire::Body::Listing, wire::CreateListing(fbb, vector)));
}

void Server::destroy(const rpc::Asked& asked, const wire::Destroy& request) {
  Table* table = find(asked, request.table());
  if (table == nullptr) return;
  const base::Status gone = base::error(MV_ENOTFOUND, "table \"{}\" was destroyed by {}", table->spec.name, view_->name(asked.client));
  table->shard->destroyed = true;
  for (const auto& [waiting, held] : std::exchange(table->held, {})) rpc_.fail(waiting, gone);
  for (const auto& [waiting, wanted] : std::exchange(table->wanted, {})) rpc_.fail(waiting, gone);
  for (const auto& [worker, waiting] : std::exchange(table->ready, {})) rpc_.fail(waiting, gone);
  by_name_.erase(table->spec.name);
  tables_[request.table()].reset();
  rpc_.answer(asked, builder_.answer({}));
}

std::string Server::missing_creators(const Table& table) const {
  std::string names;
  for (const base::Peer peer : active_)
    if (!table.ready.contains(peer)) names += (names.empty() ? "" : ", ") + view_->name(peer);
  return names;
}

// ---- what doesn't move

base::Nanos Server::next_deadline() const { return next_look_; }

void Server::watch() {
  if (next_look_ == base::kNever) next_look_ = clock_.now() + kLook;
}

void Server::tick() {
  const base::Nanos now = clock_.now();
  if (now < next_look_) return;
  next_look_ = base::kNever;
  for (const auto& table : tables_) {
    if (table == nullptr || !table->waits()) continue;
    next_look_ = now + kLook;
    if (table->moves != table->moves_seen || table->still_since.count() == 0) {
      table->moves_seen = table->moves;
      table->still_since = now;
    } else if (now - table->still_since >= kNoticeAfter) {
      base::log_warn("table \"{}\": nothing has moved for {:.0f} s; {}", table->spec.name, std::chrono::duration<double>(now - table->still_since).count(),
                     table->ready.empty() ? table->gate.missing() : "not created yet by " + missing_creators(*table));
      table->still_since = now;
    }
  }
}

// ---- changes and gets

Server::Table* Server::find(const rpc::Asked& asked, uint32_t number) {
  if (number < tables_.size() && tables_[number] != nullptr) return tables_[number].get();
  rpc_.fail(asked, base::error(MV_ENOTFOUND, "the table was destroyed"));
  return nullptr;
}

base::Status Server::check_range(const Table& table, uint64_t first, uint64_t count, uint64_t rows) const {
  if (!table.broken.ok()) return table.broken;
  const uint64_t elements = table.shard->elements();
  if (count > elements || first > elements - count || rows > wire::kMaxPayloadBytes / 8)
    return base::error(MV_EPROTOCOL, "table \"{}\": elements {} .. {} of a part that has {}", table.spec.name, first, first + count, elements);
  return {};
}

base::Status Server::check_rows(const Table& table, std::span<const std::byte> ids, uint64_t rows) const {
  if (ids.size() < rows * 8) return base::error(MV_EPROTOCOL, "table \"{}\": {} row ids in {} bytes", table.spec.name, rows, ids.size());
  const auto* id = reinterpret_cast<const int64_t*>(ids.data());
  const auto end = static_cast<int64_t>(table.shard->rows().count);
  const auto* bad = std::find_if(id, id + rows, [&](int64_t row) { return row < 0 || row >= end; });
  if (bad != id + rows) return base::error(MV_ERANGE, "table \"{}\": row {} of a part that has {}", table.spec.name, *bad, end);
  return {};
}

void Server::change(const rpc::Asked& asked, const wire::Change& request, std::span<const std::byte> payload,
                    const base::SinkRef& staged) {
  Table* table = find(asked, request.table());
  if (table == nullptr) return;
  base::Status wrong = check_range(*table, request.first(), request.count(), request.rows());
  const uint64_t bytes = request.rows() > 0 ? request.rows() * (8 + table->spec.row_bytes()) : request.count() * table->spec.element_bytes();
  const bool here = request.offered() == 0;
  if (wrong.ok() && (here ? payload.size() : request.offered()) != bytes)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": a change of {} bytes came with {}", table->spec.name, bytes, payload.size());
  if (wrong.ok() && here && request.rows() > 0) wrong = check_rows(*table, payload, request.rows());
  if (!wrong.ok()) return rpc_.fail(asked, wrong);

  Held held{request.first(), request.count(), request.rows(), payload, staged, {}};
  const int64_t worker = worker_id(asked.client);
  if (!counts_ || request.write() != wire::Write::Add || worker < 0) {
    apply(*table, request.write(), held);
    return rpc_.finish(asked);
  }
  if (staged == nullptr && !payload.empty()) {  // shown in place: must outlive the call
    held.copy = pool_.take(payload.size());
    std::memcpy(held.copy.bytes.data(), payload.data(), payload.size());
    held.payload = held.copy.bytes;
  }
  table->held.emplace(asked, std::move(held));
  watch();
  table->gate.change(static_cast<size_t>(worker), asked, {request.round(), request.index()}, request.chunks(), bytes, here);
}

void Server::on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) {
  for (const auto& table : tables_) {
    if (table == nullptr) continue;
    const auto found = table->held.find(asked);
    if (found == table->held.end()) continue;
    Held& held = found->second;
    const uint64_t bytes = held.rows > 0 ? held.rows * (8 + table->spec.row_bytes()) : held.count * table->spec.element_bytes();
    base::Status wrong;
    if (payload.size() != bytes)
      wrong = base::error(MV_EPROTOCOL, "table \"{}\": {} bytes were offered, {} came", table->spec.name, bytes, payload.size());
    else if (held.rows > 0)
      wrong = check_rows(*table, payload, held.rows);
    if (!wrong.ok()) {  // a client that breaks the protocol: its add counts as nothing, the others go on
      held.rows = held.count = 0;
      payload = {};
    }
    held.payload = payload;
    held.keep = staged;
    if (staged == nullptr && !payload.empty()) {
      held.copy = pool_.take(payload.size());
      std::memcpy(held.copy.bytes.data(), payload.data(), payload.size());
      held.payload = held.copy.bytes;
    }
    return table->gate.data(static_cast<size_t>(worker_id(asked.client)), asked);
  }
}

void Server::apply(Table& table, wire::Write write, const Held& held) {
  table::Shard& shard = *table.shard;
  if (held.rows > 0) {
    const std::span rows(reinterpret_cast<const int64_t*>(held.payload.data()), held.rows);
    const std::byte* values = held.payload.data() + held.rows * 8;
    return write == wire::Write::Add ? shard.add_rows(rows, values) : shard.set_rows(rows, values);
  }
  if (held.count == 0) return;
  return write == wire::Write::Add ? shard.add(held.first, held.count, held.payload.data())
                                   : shard.set(held.first, held.count, held.payload.data());
}

void Server::get(const rpc::Asked& asked, const wire::Get& request, std::span<const std::byte> payload) {
  Table* table = find(asked, request.table());
  if (table == nullptr) return;
  base::Status wrong = check_range(*table, request.first(), request.count(), request.rows());
  const uint64_t bytes = request.rows() > 0 ? request.rows() * table->spec.row_bytes() : request.count() * table->spec.element_bytes();
  if (wrong.ok() && bytes > wire::kMaxPayloadBytes)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": {} bytes in one answer; at most {} are", table->spec.name, bytes, wire::kMaxPayloadBytes);
  if (wrong.ok() && request.rows() > 0) wrong = check_rows(*table, payload, request.rows());
  if (!wrong.ok()) return rpc_.fail(asked, wrong);
  Wanted wanted{request.first(), request.count(), request.rows(), {}};
  if (request.rows() > 0) {
    const auto* id = reinterpret_cast<const int64_t*>(payload.data());
    wanted.ids.assign(id, id + request.rows());
  }
  const int64_t worker = worker_id(asked.client);
  if (!counts_ || !request.gated() || worker < 0) return reply_values(asked, *table, wanted);
  table->wanted.emplace(asked, std::move(wanted));
  watch();
  table->gate.get(static_cast<size_t>(worker), asked, {request.round(), request.index()});
}

void Server::reply_values(const rpc::Asked& asked, Table& table, const Wanted& wanted) {
  const uint64_t bytes = wanted.rows > 0 ? wanted.rows * table.spec.row_bytes() : wanted.count * table.spec.element_bytes();
  // A copy, so that changes made while the answer is being sent don't show in it: a get is atomic per stripe.
  base::Pool::Block block = pool_.take(bytes);
  if (wanted.rows > 0)
    table.shard->read_rows(wanted.ids, block.bytes.data());
  else
    table.shard->read(wanted.first, wanted.count, block.bytes.data());
  const auto values = base::Payload::kept(block.bytes, block.memory);
  rpc_.answer(asked, builder_.finish(wire::Body::Reply, wire::CreateReply(builder_.fbb()), values));
}

void Server::got(const rpc::Asked& asked, const wire::Got& request) {
  Table* table = find(asked, request.table());
  if (table == nullptr) return;
  rpc_.finish(asked);
  const int64_t worker = worker_id(asked.client);
  if (counts_ && worker >= 0) table->gate.got(static_cast<size_t>(worker), request.round());
}

void Server::on_cancel(const rpc::Asked& asked) {
  const int64_t worker = worker_id(asked.client);
  for (const auto& table : tables_) {
    if (table == nullptr) continue;
    const auto ready = table->ready.find(asked.client);
    if (ready != table->ready.end() && ready->second == asked) {
      const std::string missing = missing_creators(*table);
      table->ready.erase(ready);
      table->creators.erase(asked.client);
      return rpc_.fail(asked, base::error(MV_ETIMEOUT, "table \"{}\": not created yet by {}", table->spec.name, missing));
    }
    if (worker < 0 || (!table->held.contains(asked) && !table->wanted.contains(asked))) continue;
    std::string missing;
    if (!table->gate.withdraw(static_cast<size_t>(worker), asked, &missing)) return;
    table->held.erase(asked);
    table->wanted.erase(asked);
    return rpc_.fail(asked, base::error(MV_ETIMEOUT, "table \"{}\": {}", table->spec.name, missing));
  }
}

// ---- what the gate decides

void Server::Table::apply_change(const rpc::Asked& asked) {
  const auto found = held.find(asked);
  if (found == held.end()) return;
  server.apply(*this, wire::Write::Add, found->second);
  held.erase(found);
  ++moves;
  server.rpc_.finish(asked);
}

void Server::Table::grant_change(const rpc::Asked& asked) { server.rpc_.grant(asked); }

void Server::Table::serve_get(const rpc::Asked& asked) {
  const auto found = wanted.find(asked);
  if (found == wanted.end()) return;
  const Wanted values = std::move(found->second);
  wanted.erase(found);
  ++moves;
  server.reply_values(asked, *this, values);
}

void Server::Table::fail_gated(const rpc::Asked& asked, const base::Status& why) {
  held.erase(asked);
  wanted.erase(asked);
  ++moves;
  server.rpc_.fail(asked, why);
}

}  // namespace mv::ps
