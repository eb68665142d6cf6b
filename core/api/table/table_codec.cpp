// TableHandle: adds and gets through codecs.

#include <algorithm>

#include "api/table/table_handle.hpp"
#include "codec/values.hpp"

namespace mv::api {

base::Status TableHandle::check_encoded() const {
  if (!spec_.is_keyed() && tensor::is_floating(spec_.dtype)) return {};
  return base::error(MV_EINVAL, "table \"{}\" is {}: only dense floating-point values can be compressed", spec_.name, spec_.describe());
}

void TableHandle::encode(std::span<const table::ChunkRange> pieces, const std::byte* gradient, std::byte* residual, const codec::Codec& codec,
                         std::byte* out) const {
  const size_t left_bytes = tensor::dtype_bytes(tensor::storage_dtype(spec_.dtype));
  for (const table::ChunkRange& piece : pieces)
    codec::encode_values(codec, spec_.dtype, gradient + piece.offset * spec_.element_bytes(), residual + piece.offset * left_bytes,
                         piece.count, out + piece.encoded_at);
}

/// This process's own part goes through the codec as well: the result must not depend on where a key lies.
void TableHandle::change_own_encoded(const std::byte* gradient, std::byte* residual, const codec::Codec& codec) {
  std::vector<table::ChunkRange> pieces = table::plan_all(spec_, table_->servers.size());
  std::erase_if(pieces, [own = own_server()](const table::ChunkRange& piece) { return piece.server != own; });
  std::vector<std::byte> encoded(table::place_encoded(pieces, codec)), values;
  encode(pieces, gradient, residual, codec, encoded.data());
  for (const table::ChunkRange& piece : pieces) {
    values.resize(piece.count * spec_.element_bytes());
    codec::decode_values(codec, spec_.dtype, encoded.data() + piece.encoded_at, values.data(), piece.count);
    own_->change(wire::Write::Add, calls_.identity().worker_id, piece.first, piece.count, values.data(),
                 piece.number == 0 ? shard::ChangePart::kFirst : shard::ChangePart::kFurther);
  }
}

Started TableHandle::add_encoded(const ConstData& gradient, std::byte* residual, const codec::CodecRef& codec, const CallOptions& options) {
  if (const base::Status wrong = check_encoded(); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = check_change({}, gradient); !wrong.ok()) return {wrong, nullptr};
  const auto* const values = static_cast<const std::byte*>(gradient.values);
  if (all_own_ && changes_own_) {
    count(table::Use::kAdd, table::Path::kHere, {});
    change_own_encoded(values, residual, *codec);
    return finished_here(options);
  }
  count(table::Use::kAdd, table::Path::kMessage, {});
  table::Request request = change_request(wire::Write::Add, options);
  request.codec = codec;
  std::vector<table::ChunkRange> pieces = table::plan_all(spec_, table_->servers.size(), request.skip);
  const uint64_t bytes = table::place_encoded(pieces, *codec);
  if (options.mode != Mode::kBlocking) {
    const auto token = calls_.reserve(bytes, options);
    if (!token.ok()) return {token.status(), nullptr};
    request.reserved = token.value();
  }
  // From here on nothing fails before the call begins, so the residual may change.
  const std::shared_ptr<std::byte[]> encoded(new std::byte[bytes]);
  encode(pieces, values, residual, *codec, encoded.get());
  request.source = base::Payload::kept({encoded.get(), bytes}, encoded);
  uint64_t elements = 0;
  for (const table::ChunkRange& piece : pieces) elements += piece.count;
  uses_.count_encoded(elements * spec_.element_bytes(), bytes);
  const bool may_fail = own_ != nullptr && own_->on_device() != nullptr;
  if (changes_own_ && may_fail) change_own_encoded(values, residual, *codec);  // before anything is under way
  std::function<void()> own_work;
  if (changes_own_ && !may_fail) own_work = [&] { change_own_encoded(values, residual, *codec); };
  return start_change(std::move(request), options, own_work);
}

Started TableHandle::get_encoded(const MutableData& data, const codec::CodecRef& codec, const CallOptions& options) {
  if (const base::Status wrong = check_encoded(); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = check_shape({}, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  return ask_for(true, {}, {static_cast<std::byte*>(data.values), spec_.bytes()}, codec, options);
}

}  // namespace mv::api
