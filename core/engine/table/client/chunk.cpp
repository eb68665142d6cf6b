#include "engine/table/client/chunk.hpp"

#include <algorithm>
#include <cstring>

#include "codec/values.hpp"

namespace mv::table {

/// The place of this chunk's values in the caller's memory; empty if they are scattered.
std::span<std::byte> Client::Chunk::target() const {
  if (!op->request.many.empty()) return {};
  if (op->request.keeps_encoded) return op->request.destination.subspan(piece.encoded_at, wire_bytes());
  const shard::Spec& spec = op->request.table->spec;
  if (piece.ids.empty()) return op->request.destination.subspan(piece.offset * spec.element_bytes(), bytes());
  if (!piece.contiguous()) return {};
  return op->request.destination.subspan(piece.from.front() * spec.row_bytes(), bytes());
}

base::SinkRef Client::Chunk::place(const wire::Message&, size_t size) {
  if (over || op->request.kind != OpKind::kGet || size != wire_bytes()) return base::Sink::nowhere();
  // One answer at a time goes straight into the caller's memory: a repeated one must not write there after the end of
  // this call.
  const bool as_it_is = op->request.codec == nullptr || op->request.keeps_encoded;
  if (const auto memory = target(); as_it_is && !memory.empty() && sink_ == nullptr) return sink_ = base::Sink::into(memory);
  base::Pool::Block block = client_.servers_.pool.take(size);
  return base::Sink::into(block.bytes, block.memory);
}

base::Status Client::Chunk::take(std::span<const std::byte> values) {
  if (bytes() == 0) return {};
  if (const codec::CodecRef& codec = op->request.codec; codec != nullptr) {
    if (base::Status wrong = codec->check(values, piece.count); !wrong.ok()) return wrong;
    const auto memory = target();
    if (!op->request.keeps_encoded)
      codec::decode_values(*codec, op->request.table->spec.dtype, values.data(), memory.data(), piece.count);
    else if (memory.data() != values.data())
      std::memcpy(memory.data(), values.data(), values.size());
    return {};
  }
  if (values.size() != bytes())
    return base::error(MV_EPROTOCOL, "table \"{}\": {} bytes received, {} expected", op->request.table->spec.name, values.size(), bytes());
  if (!op->request.many.empty()) {
    for (const ManyPart& part : op->request.many) {
      std::memcpy(part.destination.data(), values.data(), part.destination.size());
      values = values.subspan(part.destination.size());
    }
    return {};
  }
  const auto memory = target();
  if (!memory.empty()) {
    if (memory.data() != values.data()) std::memcpy(memory.data(), values.data(), values.size());
    return {};
  }
  const uint64_t row_bytes = op->request.table->spec.row_bytes();
  for (size_t i = 0; i < piece.from.size(); ++i)
    std::memcpy(op->request.destination.data() + piece.from[i] * row_bytes, values.data() + i * row_bytes, row_bytes);
  return {};
}

void Client::Chunk::finish(const base::Status& status, const wire::Message*, std::span<const std::byte> values) {
  if (over) return;
  over = true;
  base::Status result = status;
  if (status.ok() && op->request.kind == OpKind::kGet) result = take(values);
  if (payload != nullptr && payload.use_count() > 1) payload->make_owned();  // the link has not sent all of it yet
  if (sink_ != nullptr) sink_->discard();
  sink_.reset();
  client_.chunk_done(op, *this, result);
}

void Client::Chunk::let_go() {
  if (makes_payload && !over) {
    makes_payload = false;
    payload = client_.payload_of(*op, piece);
  }
  if (payload != nullptr) payload->make_owned();
  if (sink_ != nullptr) sink_->discard();
}

}  // namespace mv::table
