#include "engine/table/server/creations.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/similar.hpp"
#include "engine/table/server/beginnings.hpp"
#include "engine/table/spec_wire.hpp"
#include "shard/on_device.hpp"

namespace mv::table {

namespace {
bool contains(const std::vector<base::Peer>& peers, base::Peer peer) { return std::ranges::find(peers, peer) != peers.end(); }
bool is_set(const flatbuffers::Vector<uint8_t>* flags, size_t at) {
  return flags != nullptr && at < flags->size() && flags->Get(static_cast<uint32_t>(at)) != 0;
}
}  // namespace

void Creations::create(const rpc::Asked& asked, const wire::Create& request, std::span<const std::byte> payload) {
  if (request.specs() == nullptr || request.specs()->size() == 0) return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a table without a spec"));
  if (!roster_.is_active(asked.client)) return rpc_.fail(asked, base::error(MV_ESTATE, "only workers create tables"));
  std::vector<shard::Spec> specs;
  specs.reserve(request.specs()->size());
  for (const wire::TableSpec* spec : *request.specs()) specs.push_back(read_spec(*spec));
  std::vector<uint32_t> numbers;
  numbers.reserve(specs.size());
  registry_.expect_names(specs.size());
  for (const shard::Spec& spec : specs) numbers.push_back(registry_.number_of(spec.name));
  base::Status wrong = check(asked, request, specs, numbers);
  for (size_t i = 0; i < specs.size() && wrong.ok(); ++i) {
    if (numbers[i] != Registry::kNoTable) continue;
    numbers[i] = registry_.add(std::make_shared<const shard::Spec>(std::move(specs[i])));
    wrong = std::exchange(registry_.at(numbers[i])->broken, {});
  }
  if (wrong.ok()) wrong = take_initial(request, numbers, payload);
  if (!wrong.ok()) {
    give_up(asked.client, numbers, wrong);
    return rpc_.fail(asked, wrong);
  }
  for (const uint32_t number : numbers) registry_.at(number)->opened(static_cast<size_t>(roster_.worker_id(asked.client)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    Table::Creating& creating = registry_.at(numbers[i])->creating();
    if (creating.creators.empty()) creating.creators.reserve(roster_.active().size());
    if (!contains(creating.creators, asked.client)) creating.creators.push_back(asked.client);
    creating.wants_initial = creating.wants_initial || is_set(request.initial(), i);
  }
  answer_created(asked, numbers);
}

/// Changes nothing.
base::Status Creations::check(const rpc::Asked& asked, const wire::Create& request, std::span<const shard::Spec> specs,
                              std::span<const uint32_t> numbers) const {
  for (const auto* flags : {request.holds(), request.initial(), request.values()})
    if (flags != nullptr && flags->size() != 0 && flags->size() != specs.size())
      return base::error(MV_EPROTOCOL, "a creation whose lists differ in length");
  for (size_t i = 0; i < specs.size(); ++i) {
    const shard::Spec& spec = specs[i];
    if (numbers[i] == Registry::kNoTable) {
      if (base::Status wrong = check_spec(spec); !wrong.ok()) return wrong;
      continue;
    }
    const Table& table = *registry_.at(numbers[i]);
    if (!table.broken.ok()) return table.broken;
    // A complete table is from a checkpoint, or older than this worker: its updater's parameters may have changed.
    const bool agrees = table.complete ? table.spec.same_but_for_parameters(spec) : table.spec.same_shape(spec);
    if (!agrees)
      return base::error(MV_EDISAGREE, "table \"{}\": {} requests {}, {} {}", spec.name, roster_.view().name(asked.client), spec.describe_unlike(table.spec),
                         table.complete ? "but it exists as" : "others request", table.spec.describe_unlike(spec));
    if (is_set(request.holds(), i) && contains(table.creating().creators, asked.client))
      return base::error(MV_EDISAGREE, "table \"{}\" already exists; mv_table_open() opens it", spec.name);
  }
  return {};
}

/// Stores worker 0's initial values of tables that are being created.
base::Status Creations::take_initial(const wire::Create& request, std::span<const uint32_t> numbers, std::span<const std::byte> payload) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!is_set(request.values(), i)) continue;
    const Table& table = *registry_.at(numbers[i]);
    const uint64_t bytes = table.shard->elements() * table.spec.element_bytes();
    if (bytes > payload.size()) return base::error(MV_EPROTOCOL, "table \"{}\": its initial value has too few bytes", table.spec.name);
    if (!table.complete && bytes > 0) {
      try {
        table.shard->change(shard::Write::Set, 0, 0, table.shard->elements(), payload.data());
      } catch (const shard::DeviceFailure& failure) {
        return failure.status();
      }
    }
    payload = payload.subspan(bytes);
  }
  return payload.empty() ? base::Status() : base::error(MV_EPROTOCOL, "a creation has {} bytes too many", payload.size());
}

void Creations::give_up(const rpc::Asked& asked, const wire::GiveUp& request) {
  const auto code = static_cast<mv_status>(request.status());
  const std::string text = request.text() != nullptr ? request.text()->str() : "";
  if (request.tables() != nullptr && roster_.is_active(asked.client) && code != MV_OK)
    give_up(asked.client, {request.tables()->data(), request.tables()->size()}, base::Status(code, text));
  rpc_.answer(asked, builder_.answer({}));
}

/// The client knows that the creation of these tables has failed.
void Creations::give_up(base::Peer client, std::span<const uint32_t> numbers, const base::Status& why) {
  for (const uint32_t number : numbers) {
    Table* const table = registry_.at(number);
    if (table == nullptr || table->complete) continue;
    if (!contains(table->creating().told, client)) table->creating().told.push_back(client);
    table->broken.ok() ? break_off(number, why) : forget_if_all_told(number);
  }
}

void Creations::answer_created(const rpc::Asked& asked, std::span<const uint32_t> numbers, const shard::Spec* opened) {
  auto& fbb = builder_.fbb();
  const auto spec = opened != nullptr ? write_spec(fbb, *opened) : flatbuffers::Offset<wire::TableSpec>();
  const auto tables = fbb.CreateVectorOfStructs(created_tables(registry_, numbers, roster_.worker_id(asked.client)));
  rpc_.answer(asked, builder_.finish(wire::Body::Created, wire::CreateCreated(fbb, tables, spec)));
}

void Creations::ready(const rpc::Asked& asked, const wire::Ready& request) {
  if (request.tables() == nullptr) return rpc_.fail(asked, base::error(MV_EPROTOCOL, "a readiness message without tables"));
  for (const uint32_t number : *request.tables()) {
    Table* table = registry_.find(asked, number);
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
    Table& table = *registry_.at(number);
    if (table.complete) continue;  // this worker replaces a lost one
    std::vector<rpc::Asked>& waiting = table.creating().ready;
    const auto before = std::ranges::find(waiting, asked.client, &rpc::Asked::client);
    if (before != waiting.end() && *before == asked) continue;
    if (before != waiting.end())  // it gave up, and tries again
      end_readying(rpc::Asked(*before), base::error(MV_ETIMEOUT, "table \"{}\": requested again", table.spec.name));
    if (waiting.empty()) waiting.reserve(roster_.active().size());
    waiting.push_back(asked);
    ++readying->second.missing;
  }
  for (const uint32_t number : numbers) {
    if (!readying_.contains(asked)) return;  // the creation of one of them failed
    settle(number);
  }
  if (const auto still = readying_.find(asked); still != readying_.end() && --still->second.missing == 0) end_readying(asked, {});
}

bool Creations::awaits_ready(const wire::Ready& request) const {
  if (request.tables() == nullptr) return true;
  bool is_open = false;
  for (const uint32_t number : *request.tables()) {
    const Table* const table = registry_.at(number);
    if (table == nullptr || !table->broken.ok() || !table->creating().ready.empty()) return true;
    is_open = is_open || !table->complete;
  }
  return !is_open;
}

/// Reports the end of its creation to the worker.
void Creations::end_readying(const rpc::Asked& asked, const base::Status& status) {
  const auto found = readying_.find(asked);
  if (found == readying_.end()) return;
  const Readying ended = std::move(found->second);
  readying_.erase(found);
  if (status.ok()) return rpc_.answer(asked, builder_.answer({}));
  for (const uint32_t number : ended.tables)
    if (Table* const table = registry_.at(number)) std::erase(table->creating().ready, asked);
  rpc_.fail(asked, status);
}

void Creations::settle(uint32_t number) {
  Table* const table = registry_.at(number);
  if (table == nullptr || table->complete || !table->broken.ok()) return;
  Table::Creating& creating = table->creating();
  if (creating.ready.empty() || creating.ready.size() < roster_.active().size() || !missing_creators(*table).empty()) return;
  if (creating.wants_initial && !contains(creating.creators, roster_.worker(0)))
    return break_off(number, base::error(MV_ESTATE,
                                         "table \"{}\": worker 0, which gives the initial value, is gone; create the table without one, then set it",
                                         table->spec.name));
  table->complete = true;
  for (const rpc::Asked& asked : std::exchange(creating.ready, {}))
    if (const auto waiting = readying_.find(asked); waiting != readying_.end() && --waiting->second.missing == 0) end_readying(asked, {});
}

void Creations::break_off(uint32_t number, const base::Status& why) {
  Table& table = *registry_.at(number);
  if (!table.broken.ok() || table.complete) return;
  table.broken = why;
  Table::Creating& creating = table.creating();
  for (const rpc::Asked& asked : std::exchange(creating.ready, {})) {
    if (!contains(creating.told, asked.client)) creating.told.push_back(asked.client);
    end_readying(asked, why);
  }
  forget_if_all_told(number);
}

/// Frees the name once no worker can mistake the failed creation for a new one.
void Creations::forget_if_all_told(uint32_t number) {
  const std::vector<base::Peer>& told = registry_.at(number)->creating().told;
  if (std::ranges::all_of(roster_.active(), [&](base::Peer worker) { return contains(told, worker); })) remove(number);
}

void Creations::open(const rpc::Asked& asked, const wire::Open& request) {
  const std::string name = request.name() != nullptr ? request.name()->str() : "";
  const uint32_t number = registry_.number_of(name);
  Table* const table = registry_.at(number);  // null for kNoTable
  if (table == nullptr || !table->complete) {
    std::vector<std::string_view> names;
    for (const Table* known : registry_.complete_tables()) names.push_back(known->spec.name);
    return rpc_.fail(asked, base::error(MV_ENOTFOUND, "there is no table \"{}\"{}", name, base::did_you_mean(name, names)));
  }
  if (roster_.is_active(asked.client)) table->opened(static_cast<size_t>(roster_.worker_id(asked.client)));
  answer_created(asked, {&number, 1}, &table->spec);
}

void Creations::destroy(const rpc::Asked& asked, const wire::Destroy& request) {
  Table* table = registry_.find(asked, request.table());
  if (table == nullptr) return;
  const base::Status gone = base::error(MV_ENOTFOUND, "table \"{}\" was destroyed by {}", table->spec.name, roster_.view().name(asked.client));
  if (table->shard != nullptr) table->shard->destroy();
  for (const rpc::Asked& waiting : held_.of_table(request.table())) {
    held_.erase(waiting);
    rpc_.fail(waiting, gone);
  }
  for (const rpc::Asked& waiting : std::exchange(table->creating().ready, {})) end_readying(waiting, gone);
  remove(request.table());
  rpc_.answer(asked, builder_.answer({}));
}

void Creations::cancel(const rpc::Asked& asked) {
  const auto found = readying_.find(asked);
  if (found == readying_.end()) return;
  base::Status why;
  for (const uint32_t number : found->second.tables) {
    Table& table = *registry_.at(number);
    if (table.complete) continue;
    if (why.ok())
      why = base::error(MV_ETIMEOUT, "table \"{}\": not created yet by {}", table.spec.name, roster_.view().names(missing_creators(table)));
    std::erase(table.creating().creators, asked.client);
  }
  end_readying(asked, why);
}

/// The workers that are not ready.
std::vector<base::Peer> Creations::missing_creators(const Table& table) const {
  const std::vector<rpc::Asked>& ready = table.creating().ready;
  std::vector<base::Peer> missing;
  for (const base::Peer peer : roster_.active())
    if (std::ranges::find(ready, peer, &rpc::Asked::client) == ready.end()) missing.push_back(peer);
  return missing;
}

/// Removes the table and all that waits for it, and frees its name.
void Creations::remove(uint32_t number) {
  held_.forget_table(number);
  registry_.remove(number);
}

void Creations::add_waits(std::vector<cluster::Wait>& waits) const {
  const base::Nanos now = clock_.now();
  for (const auto& [asked, readying] : readying_) {
    const auto open = std::ranges::find_if(readying.tables, [&](uint32_t number) { return !registry_.at(number)->complete; });
    const Table& table = *registry_.at(*open);
    const base::Nanos age = now - readying.since;
    const std::string others = readying.missing > 1 ? fmt::format(" and {} more", readying.missing - 1) : "";
    waits.push_back({cluster::WaitKind::kCreation, asked.client, table.spec.name + others, 0, age, age, {}});
    for (const base::Peer peer : missing_creators(table)) waits.back().awaited.push_back({peer, "has not created it"});
  }
}

}  // namespace mv::table
