#include "engine/table/server/gets.hpp"

#include <utility>

namespace mv::table {

void Gets::get(const rpc::Asked& asked, const wire::Get& request, std::span<const std::byte> payload) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  base::Status wrong = table->check_range(request.first(), request.count(), request.rows());
  const uint64_t bytes = request.rows() > 0 ? request.rows() * table->spec.row_bytes() : request.count() * table->spec.element_bytes();
  if (wrong.ok() && bytes > wire::kMaxPayloadBytes)
    wrong = base::error(MV_EPROTOCOL, "table \"{}\": {} bytes requested in one answer, at most {} allowed", table->spec.name, bytes,
                        wire::kMaxPayloadBytes);
  if (!wrong.ok()) return rpc_.fail(asked, wrong);
  if (const auto lost = table->take_lost_round(asked.client)) return rpc_.fail(asked, *lost);
  auto codec = table->codec_of(request.codec(), request.rows());
  if (!codec.ok()) return rpc_.fail(asked, codec.status());
  HeldGet get{request.first(), request.count(), {}};
  get.codec = std::move(codec).value();
  if (request.rows() > 0) {
    auto rows = table->take_rows(payload, request.rows(), roster_);
    if (!rows.ok()) return rpc_.fail(asked, rows.status());
    get.ids = std::move(rows).value();
  }
  const int64_t worker = roster_.worker_id(asked.client);
  if (table->consistency == shard::Consistency::kAsync || !request.gated() || worker < 0) return answers_.answer(asked, *table, get);
  if (const auto loss = losses_.take(*table, asked.client)) return rpc_.fail(asked, *loss);
  held_.hold(asked, table->number, std::move(get));
  table->get(static_cast<size_t>(worker), asked, request.clock(), {request.round(), request.index()});
}

void Gets::got(const rpc::Asked& asked, const wire::Got& request) {
  Table* table = registry_.find_sound(asked, request.table());
  if (table == nullptr) return;
  rpc_.finish(asked);
  table->got(roster_.worker_id(asked.client), request.round());
}

}  // namespace mv::table
