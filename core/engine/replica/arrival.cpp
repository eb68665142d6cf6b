#include "engine/replica/arrival.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "tensor/dtype.hpp"

namespace mv::replica {

base::Status Arrival::take(const cluster::Member& server, const wire::Replicate& piece, std::span<const std::byte> payload) {
  if (!no_memory_.ok()) return no_memory_;
  base::Status status = take_piece(server, piece, payload);
  if (status.code() == MV_ENOMEM) no_memory_ = status;
  return status;
}

base::Status Arrival::take_piece(const cluster::Member& server, const wire::Replicate& piece, std::span<const std::byte> payload) try {
  if (has_all_) return base::error(MV_EPROTOCOL, "a copied part continues after its end");
  if (piece.event() == wire::ReplicaEvent::State) return part_.restore(server, tables_, payload);
  if (!part_.has_started()) return base::error(MV_EPROTOCOL, "a copied part does not begin with its state");
  if (piece.event() == wire::ReplicaEvent::Rows && piece.rows() != nullptr) return take_rows(*piece.rows(), payload);
  if (piece.event() != wire::ReplicaEvent::End || !rows_.empty()) return base::error(MV_EPROTOCOL, "a copied part ends in the middle of its values");
  has_all_ = true;
  return {};
} catch (const std::bad_alloc&) {  // this process may serve other parts: it must not end because it has no memory for a copy
  return {MV_ENOMEM, "there is no memory for the copy of a part"};
}

base::Status Arrival::take_rows(const wire::ReplicaRows& rows, std::span<const std::byte> payload) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  const auto shard = tables_.shard(rows.table());
  if (shard == nullptr) return base::error(MV_EPROTOCOL, "a copied part has values of a table that it does not have");
  const shard::Spec& spec = shard->spec();
  const uint64_t row_bytes = spec.cols * tensor::dtype_bytes(tensor::storage_dtype(spec.dtype));
  const auto content = static_cast<shard::Content>(rows.content());
  const uint64_t arrays = content == shard::Content::kValues ? 1 + uint64_t{rows.states()} : content == shard::Content::kGot ? 1 : 0;
  const bool is_known = content <= shard::Content::kAbsent && (content == shard::Content::kValues || rows.states() == 0);
  const bool sound = is_known && rows.count() < kMost / row_bytes && rows.ids() == (spec.is_keyed() ? rows.count() : 0) &&
                     rows.from() == rows_.size() && rows.bytes() == rows.ids() * sizeof(int64_t) + rows.count() * row_bytes * arrays &&
                     rows.from() + payload.size() <= rows.bytes();
  if (!sound)
    return base::error(MV_EPROTOCOL, "table \"{}\" of a copied part: {} bytes from {} of {} do not fit", spec.name, payload.size(), rows.from(),
                       rows.bytes());
  rows_.insert(rows_.end(), payload.begin(), payload.end());
  if (rows_.size() < rows.bytes()) return {};
  const std::vector<std::byte> whole = std::exchange(rows_, {});
  shard::Restored restored{
      .first = rows.first(), .count = rows.count(), .ids = {}, .values = {}, .states = {}, .content = content, .worker = rows.worker()};
  restored.ids.resize(rows.ids());
  if (rows.ids() > 0) std::memcpy(restored.ids.data(), whole.data(), rows.ids() * sizeof(int64_t));
  auto rest = std::span(whole).subspan(rows.ids() * sizeof(int64_t));
  const size_t each = rows.count() * row_bytes;
  if (arrays > 0) restored.values = rest.first(each);
  for (uint32_t i = 0; i < rows.states(); ++i) restored.states.push_back(rest.subspan((i + 1) * each, each));
  return shard->restore(restored);
}

void Arrival::hold(const rpc::Asked& asked, const wire::Message& input, std::span<const std::byte> payload, const base::SinkRef& staged) {
  Held held{asked, wire::copy_header(input), {}, payload, staged};
  if (staged == nullptr) {
    held.copied.assign(payload.begin(), payload.end());
    held.payload = held.copied;  // a vector's memory moves with it
  }
  held_bytes_ += held.bytes();
  held_.push_back(std::move(held));
}

rpc::Asked Arrival::process_next(base::Status* status) {
  const Held held = std::move(held_.front());
  held_.pop_front();
  held_bytes_ -= held.bytes();
  const auto& input = *flatbuffers::GetRoot<wire::Message>(held.header.data())->body_as_Replicate();
  *status = part_.replay(self_, input, held.payload, held.staged);
  return held.asked;
}

}  // namespace mv::replica
