#include "engine/table/server/answers.hpp"

#include <algorithm>
#include <new>
#include <numeric>

#include "codec/values.hpp"
#include "shard/on_device.hpp"

namespace mv::table {

void Answers::answer(const rpc::Asked& asked, Table& table, const HeldGet& get) {
  if (asked.part != 0) return answer_part(asked, table);
  const bool by_row = !get.ids.empty();
  const uint64_t bytes = by_row ? get.ids.size() * table.spec.row_bytes() : get.count * table.spec.element_bytes();
  if (bytes == 0)  // sent only to be counted: none of the rows are here
    return rpc_.answer(asked, builder_.finish(wire::Body::Reply, wire::CreateReply(builder_.fbb())));
  // A copy, so that changes made while the answer is being sent don't show in it: a get is atomic per stripe.
  base::Pool::Block block;
  try {
    block = pool_.take(bytes);
    const shard::Worker worker = roster_.worker_id(asked.client);
    if (by_row)
      table.shard->read_rows(worker, get.ids, block.bytes.data());
    else
      table.shard->read(worker, get.first, get.count, block.bytes.data());
    if (get.codec != nullptr) block = encode(table, get, block);
  } catch (const shard::DeviceFailure& failure) {
    return rpc_.fail(asked, failure.status());
  } catch (const std::bad_alloc&) {
    if (roster_.has_copy(table.spec) && table.shard->keeps_backups()) throw;
    return rpc_.fail(asked, base::error(MV_ENOMEM, "table \"{}\": server {} has no memory for the answer", table.spec.name, roster_.index()));
  }
  const auto values = base::Payload::kept(block.bytes, block.memory);
  rpc_.answer(asked, reply_.finish([](wire::Reply&) {}, values));
}

/// Pulled values have no residual: what the codec leaves out of them is lost.
base::Pool::Block Answers::encode(const Table& table, const HeldGet& get, const base::Pool::Block& values) {
  const base::Pool::Block residual = pool_.take(get.count * tensor::dtype_bytes(tensor::storage_dtype(table.spec.dtype)));
  std::ranges::fill(residual.bytes, std::byte{0});
  base::Pool::Block encoded = pool_.take(get.codec->encoded_bytes(get.count));
  codec::encode_values(*get.codec, table.spec.dtype, values.bytes.data(), residual.bytes.data(), get.count, encoded.bytes.data());
  return encoded;
}

void Answers::begin_many(const rpc::Asked& asked, const flatbuffers::Vector<uint32_t>& bytes) {
  Many& many = many_[asked];
  many.at.assign(bytes.size(), 0);
  std::exclusive_scan(bytes.begin(), bytes.end(), many.at.begin(), uint32_t{0});
  many.values = pool_.take(many.at.back() + bytes.Get(bytes.size() - 1));
  rpc_.split(asked, bytes.size(), [this, asked](const base::Status& status) { end_many(asked, status); });
}

void Answers::end_many(const rpc::Asked& asked, const base::Status& status) {
  const auto found = many_.find(asked);
  if (found == many_.end()) return;
  const base::Pool::Block values = std::move(found->second.values);
  many_.erase(found);
  if (!status.ok()) return rpc_.fail(asked, status);
  rpc_.answer(asked, builder_.finish(wire::Body::Reply, wire::CreateReply(builder_.fbb()), base::Payload::kept(values.bytes, values.memory)));
}

void Answers::answer_part(const rpc::Asked& asked, Table& table) {
  const auto found = many_.find({asked.client, asked.seq});
  if (found == many_.end()) return;
  std::byte* const to = found->second.values.bytes.data() + found->second.at[asked.part - 1];
  try {
    table.shard->read(roster_.worker_id(asked.client), 0, table.shard->elements(), to);
  } catch (const shard::DeviceFailure& failure) {
    return rpc_.fail(asked, failure.status());
  }
  rpc_.finish(asked);
}

uint32_t Answers::parts_of(const rpc::Asked& asked) const {
  const auto found = many_.find(asked);
  return found != many_.end() ? static_cast<uint32_t>(found->second.at.size()) : 0;
}

void Answers::forget(base::Peer worker) {
  std::erase_if(many_, [&](const auto& entry) { return entry.first.client == worker; });
}

}  // namespace mv::table
