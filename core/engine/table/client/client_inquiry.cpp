// A worker's messages about a table as a whole: its clock, its updater, its use of memory, its stored rows.

#include <algorithm>
#include <cstring>

#include "engine/table/gates/round.hpp"
#include "engine/table/spec_wire.hpp"

namespace mv::table {

void Client::clock(const TableViewRef& table, uint64_t clock) {
  const uint64_t id = next_change_++;
  changes_over_.push_back(false);
  table->open_changes.fetch_add(1, std::memory_order_relaxed);
  const auto done = [this, table, id](const base::Status& status) {
    note_untold(*table, status);
    change_over(*table, id);
  };
  const auto question = [table, clock](wire::FrameBuilder& builder, size_t server) {
    return builder.finish(wire::Body::Clock, wire::CreateClock(builder.fbb(), table->numbers[server], clock));
  };
  std::make_shared<Round>(*this, table->servers, Round::Each(), done)->tell(question);
}

std::map<std::string, uint64_t> Client::clocks() const {
  std::map<std::string, uint64_t> clocks;
  for (const auto& [name, table] : tables_) clocks.emplace(name, table->clock.load(std::memory_order_relaxed));
  return clocks;
}

void Client::set_clock(const std::string& table, uint64_t clock) {
  const auto known = tables_.find(table);
  if (known != tables_.end()) known->second->clock.store(clock, std::memory_order_release);
}

void Client::set_updater(const TableViewRef& table, const shard::UpdaterSpec& updater, size_t skip, base::OperationRef operation) {
  const uint64_t id = next_change_++;
  changes_over_.push_back(false);
  const auto done = [this, table, id, operation](const base::Status& status) {
    operation->complete(status);
    change_over(*table, id);
  };
  const auto question = [table, updater](wire::FrameBuilder& builder, size_t server) {
    const auto written = write_updater(builder.fbb(), updater);
    return builder.finish(wire::Body::SetUpdater, wire::CreateSetUpdater(builder.fbb(), table->numbers[server], written));
  };
  std::make_shared<Round>(*this, table->servers, Round::Each(), done)->tell(question, operation->deadline(), skip);
}

void Client::stat(const TableViewRef& table, base::Nanos deadline, std::function<void(base::Result<TableStats>)> told) {
  const auto stats = std::make_shared<TableStats>();
  const auto each = [stats](size_t, const wire::Message& answer, std::span<const std::byte>) {
    const auto* part = answer.body_as_Stats();
    if (part == nullptr) return;
    stats->usage.stored += part->stored();
    stats->usage.memory_bytes += part->memory_bytes();
    stats->usage.state_bytes += part->state_bytes();
    stats->usage.updates = std::max(stats->usage.updates, part->updates());
    stats->updater = read_updater(part->updater());
  };
  const auto done = [stats, told = std::move(told)](const base::Status& status) { status.ok() ? told(std::move(*stats)) : told(status); };
  // Only servers with a part of the table answer. The others have nothing to report, and may be gone.
  std::vector<base::Peer> holders;
  std::vector<uint32_t> numbers;
  for (size_t server = 0; server < table->servers.size(); ++server) {
    if (!shard::has_part(table->spec, table->servers.size(), server)) continue;
    holders.push_back(table->servers[server]);
    numbers.push_back(table->numbers[server]);
  }
  std::make_shared<Round>(*this, std::move(holders), each, done)
      ->ask(
          [numbers](wire::FrameBuilder& builder, size_t holder) {
            return builder.finish(wire::Body::Stat, wire::CreateStat(builder.fbb(), numbers[holder]));
          },
          deadline);
}

void Client::scan(const TableViewRef& table, size_t server, int64_t cursor, std::span<int64_t> rows, std::span<std::byte> values,
                  base::Nanos deadline, std::function<void(base::Result<Chunked>)> told) {
  const auto chunk = std::make_shared<Chunked>();
  const uint64_t row_bytes = values.empty() ? 0 : table->spec.row_bytes();
  const auto wrong = std::make_shared<base::Status>();
  const auto each = [chunk, wrong, rows, values, row_bytes](size_t, const wire::Message& answer, std::span<const std::byte> payload) {
    const auto* scanned = answer.body_as_Scanned();
    const bool sound = scanned != nullptr && scanned->rows() <= rows.size() && payload.size() == scanned->rows() * (sizeof(int64_t) + row_bytes);
    if (!sound) {
      *wrong = base::Status(MV_EPROTOCOL, "the answer to a scan does not fit the question");
      return;
    }
    chunk->found = scanned->rows();
    chunk->next = scanned->next();
    const size_t ids_bytes = chunk->found * sizeof(int64_t);
    if (ids_bytes == 0) return;
    std::memcpy(rows.data(), payload.data(), ids_bytes);
    if (row_bytes > 0) std::memcpy(values.data(), payload.data() + ids_bytes, payload.size() - ids_bytes);
  };
  const auto done = [chunk, wrong, told = std::move(told)](const base::Status& status) {
    if (!status.ok()) return told(status);
    wrong->ok() ? told(*chunk) : told(*wrong);
  };
  const std::vector<base::Peer> one{table->servers[server]};
  std::make_shared<Round>(*this, one, each, done)
      ->ask(
          [table, server, cursor, most = rows.size(), with_values = !values.empty()](wire::FrameBuilder& builder, size_t) {
            return builder.finish(wire::Body::Scan,
                                  wire::CreateScan(builder.fbb(), table->numbers[server], cursor, most, with_values));
          },
          deadline);
}

}  // namespace mv::table
