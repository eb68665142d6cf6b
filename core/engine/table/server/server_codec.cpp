// The server's side of compressed gradients and values.

#include <algorithm>

#include "codec/values.hpp"
#include "codec/wire.hpp"
#include "engine/table/server/server.hpp"

namespace mv::table {

/// The codec that a message names; null for none.
base::Result<codec::CodecRef> Server::Table::codec_of(const wire::Codec* wanted, uint64_t rows) const {
  if (wanted == nullptr) return codec::CodecRef();
  if (rows > 0 || spec.is_keyed() || !tensor::is_floating(spec.dtype))
    return base::error(MV_EPROTOCOL, "table \"{}\" is {}: only dense floating-point tables can be encoded, and not by row", spec.name, spec.describe());
  auto read = codec::from_wire(wanted);
  if (!read.ok()) return base::error(MV_EPROTOCOL, "table \"{}\": {}", spec.name, read.status().text());
  return read;
}

base::Status Server::apply_encoded(const Table& table, shard::Worker worker, const Held& held) {
  const base::Pool::Block values = pool_.take(held.count * table.spec.element_bytes());
  codec::decode_values(*held.codec, table.spec.dtype, held.payload.data(), values.bytes.data(), held.count);
  table.shard->change(held.write, worker, held.first, held.count, values.bytes.data(), held.piece);
  return {};
}

/// Pulled values have no residual: what the codec leaves out of them is lost.
base::Pool::Block Server::encode_values(const Table& table, const Wanted& wanted, const base::Pool::Block& values) {
  const base::Pool::Block residual = pool_.take(wanted.count * tensor::dtype_bytes(tensor::storage_dtype(table.spec.dtype)));
  std::ranges::fill(residual.bytes, std::byte{0});
  base::Pool::Block encoded = pool_.take(wanted.codec->encoded_bytes(wanted.count));
  codec::encode_values(*wanted.codec, table.spec.dtype, values.bytes.data(), residual.bytes.data(), wanted.count, encoded.bytes.data());
  return encoded;
}

}  // namespace mv::table
