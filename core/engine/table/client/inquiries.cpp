#include "engine/table/client/inquiries.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/table/client/round.hpp"
#include "engine/table/spec_wire.hpp"

namespace mv::table {

void Inquiries::stat(const TableViewRef& table, base::Nanos deadline, std::function<void(base::Result<TableStats>)> told) {
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
  std::make_shared<Round>(servers_, std::move(holders), each, done)
      ->ask(
          [numbers](wire::FrameBuilder& builder, size_t holder) {
            return builder.finish(wire::Body::Stat, wire::CreateStat(builder.fbb(), numbers[holder]));
          },
          deadline);
}

void Inquiries::scan(const TableViewRef& table, size_t server, int64_t cursor, std::span<int64_t> rows, std::span<std::byte> values,
                  base::Nanos deadline, std::function<void(base::Result<ScannedRows>)> told) {
  const auto chunk = std::make_shared<ScannedRows>();
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
  std::make_shared<Round>(servers_, one, each, done)
      ->ask(
          [table, server, cursor, most = rows.size(), with_values = !values.empty()](wire::FrameBuilder& builder, size_t) {
            return builder.finish(wire::Body::Scan,
                                  wire::CreateScan(builder.fbb(), table->numbers[server], cursor, most, with_values));
          },
          deadline);
}

void Inquiries::states(const TableViewRef& table, size_t server, uint64_t chunk, base::Nanos deadline,
                    std::function<void(base::Result<StatesChunk>)> told) {
  const auto got = std::make_shared<base::Result<StatesChunk>>(base::Status(MV_EPROTOCOL, "the answer holds no states"));
  const auto each = [got](size_t, const wire::Message& answer, std::span<const std::byte> payload) {
    const auto* rows = answer.body_as_StateRows();
    if (rows == nullptr) return;
    StatesChunk chunk{rows->first(), rows->count(), rows->state(), rows->states(), {payload.begin(), payload.end()}, {}, {}};
    if (rows->updater() != nullptr) chunk.updater = read_updater(rows->updater());
    chunk.mark.updates = rows->updates();
    if (rows->shared() != nullptr) chunk.mark.shared.assign(rows->shared()->begin(), rows->shared()->end());
    *got = std::move(chunk);
  };
  const auto done = [got, told = std::move(told)](const base::Status& status) { status.ok() ? told(std::move(*got)) : told(status); };
  std::make_shared<Round>(servers_, std::vector{table->servers[server]}, each, done)
      ->ask(
          [table, server, chunk](wire::FrameBuilder& builder, size_t) {
            return builder.finish(wire::Body::States, wire::CreateStates(builder.fbb(), table->numbers[server], chunk));
          },
          deadline);
}

void Inquiries::set_states(const TableViewRef& table, size_t server, const StatesChunk& chunk, base::Nanos deadline,
                        std::function<void(base::Result<bool>)> told) {
  const auto done = [told = std::move(told)](const base::Status& status) { status.ok() ? told(true) : told(status); };
  const auto payload = chunk.values.empty() ? nullptr : base::Payload::copy(chunk.values);
  std::make_shared<Round>(servers_, std::vector{table->servers[server]}, Round::Each(), done)
      ->ask(
          [&](wire::FrameBuilder& builder, size_t) {
            const auto shared = builder.fbb().CreateVector(chunk.mark.shared);
            const auto body = wire::CreateSetStates(builder.fbb(), table->numbers[server], chunk.first, chunk.count, 0, chunk.state, chunk.states,
                                                    chunk.mark.updates, shared);
            return builder.finish(wire::Body::SetStates, body, payload);
          },
          deadline);
}

void Inquiries::command(int64_t head, const std::string& body, base::OperationRef operation) {
  const auto round = std::make_shared<Round>(servers_, servers_.processes, servers_.serving(), Round::Each(), [operation](const base::Status& status) {
    if (!operation->done()) operation->complete(status);  // otherwise its caller has withdrawn it
  });
  // Servers that have not begun the command will not execute it. For the others the outcome is unknown.
  const auto work = std::make_shared<base::WithdrawnBy>([round = std::weak_ptr(round), held = std::weak_ptr(operation)](mv_status code) {
    if (const auto it = held.lock())
      it->complete(base::error(code, "outcome unknown: the command was withdrawn; servers that have started it will finish it"));
    if (const auto its = round.lock()) its->expire();
  });
  round->keep(work);
  operation->begin(work);
  const auto payload = body.empty() ? nullptr : base::Payload::copy(std::as_bytes(std::span(body)));
  round->ask(
      [head, payload](wire::FrameBuilder& builder, size_t) {
        return builder.finish(wire::Body::Command, wire::CreateCommand(builder.fbb(), head), payload);
      },
      operation->deadline());
}

}  // namespace mv::table
