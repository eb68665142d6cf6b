// TableHandle: adds and gets through codecs.

#include <algorithm>

#include "api/table/table_handle.hpp"
#include "base/undo.hpp"
#include "codec/on_device.hpp"
#include "codec/values.hpp"

namespace mv::api {

base::Status TableHandle::check_encoded() const {
  if (!spec_.is_keyed() && tensor::is_floating(spec_.dtype)) return {};
  return base::error(MV_EINVAL, "table \"{}\" is {}: only dense floating-point values can be compressed", spec_.name, spec_.describe());
}

/// Encodes the pieces into `out`. MV_ENOMEM: the residual is unchanged.
base::Status TableHandle::encode(std::span<const table::ChunkRange> pieces, const ConstData& gradient, std::byte* residual, const codec::Codec& codec,
                                 std::byte* out) const {
  const auto* const values = static_cast<const std::byte*>(gradient.values);
  if (gradient.device != nullptr) {
    std::vector<codec::Piece> there;
    for (const table::ChunkRange& piece : pieces) there.push_back({piece.offset, piece.count, piece.encoded_at});
    auto encoding = codec::DeviceEncoding::make(*gradient.device, codec, spec_.dtype, there);
    if (!encoding.ok()) return encoding.status();
    if (auto status = encoding.value().run(values, residual); !status.ok()) return status;
    return encoding.value().read(out);
  }
  const size_t left_bytes = tensor::dtype_bytes(tensor::storage_dtype(spec_.dtype));
  for (const table::ChunkRange& piece : pieces)
    codec::encode_values(codec, spec_.dtype, values + piece.offset * spec_.element_bytes(), residual + piece.offset * left_bytes, piece.count,
                         out + piece.encoded_at);
  return {};
}

/// This process's own part goes through the codec as well: the result must not depend on where a key lies.
void TableHandle::change_own_encoded(std::span<const table::ChunkRange> pieces, const std::byte* encoded, const codec::Codec& codec) {
  std::vector<std::byte> values;
  for (const table::ChunkRange& piece : pieces) {
    values.resize(piece.count * spec_.element_bytes());
    codec::decode_values(codec, spec_.dtype, encoded + piece.encoded_at, values.data(), piece.count);
    own_->change(wire::Write::Add, calls_.identity().worker_id, piece.first, piece.count, values.data(),
                 piece.number == 0 ? shard::ChangePart::kFirst : shard::ChangePart::kFurther);
  }
}

Started TableHandle::add_encoded(const ConstData& gradient, std::byte* residual, const codec::CodecRef& codec, const CallOptions& options) {
  if (const base::Status wrong = check_encoded(); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = check_change({}, gradient); !wrong.ok()) return {wrong, nullptr};
  const bool is_here = all_own_ && changes_own_;
  count(table::Use::kAdd, is_here ? table::Path::kHere : table::Path::kMessage, {});
  // The pieces of the request, and behind their bytes those of this process's own part.
  table::Request request = change_request(wire::Write::Add, options);
  request.codec = codec;
  const size_t servers = table_->servers.size();
  std::vector<table::ChunkRange> pieces = table::plan_all(spec_, servers, request.skip);
  const size_t sent = pieces.size();
  const uint64_t bytes = table::place_encoded(pieces, *codec);
  uint64_t elements = 0;
  for (const table::ChunkRange& piece : pieces) elements += piece.count;
  if (changes_own_)
    for (const table::ChunkRange& piece : table::plan_all(spec_, servers))
      if (piece.server == own_server()) pieces.push_back(piece);
  const std::span own = std::span(pieces).subspan(sent);
  const uint64_t own_bytes = table::place_encoded(own, *codec);
  for (table::ChunkRange& piece : own) piece.encoded_at += bytes;

  base::Undo give_back([&] { calls_.give_back(request.reserved); });
  if (options.mode != Mode::kBlocking && !is_here) {
    const auto token = calls_.reserve(bytes, options);
    if (!token.ok()) return {token.status(), nullptr};
    request.reserved = token.value();
  }
  // Once they are encoded nothing fails before the call begins, so the residual may change.
  const std::shared_ptr<std::byte[]> encoded(new std::byte[bytes + own_bytes]);
  if (const base::Status failed = encode(pieces, gradient, residual, *codec, encoded.get()); !failed.ok()) return {failed, nullptr};
  if (is_here) {
    change_own_encoded(own, encoded.get(), *codec);
    return finished_here(options);
  }
  request.source = base::Payload::kept({encoded.get(), bytes}, encoded);
  uses_.count_encoded(elements * spec_.element_bytes(), bytes);
  const bool may_fail = own_ != nullptr && own_->on_device() != nullptr;
  if (changes_own_ && may_fail) change_own_encoded(own, encoded.get(), *codec);  // before anything is under way
  std::function<void()> own_work;
  if (changes_own_ && !may_fail) own_work = [&] { change_own_encoded(own, encoded.get(), *codec); };
  const Started started = start_change(std::move(request), options, own_work);
  give_back.keep();
  return started;
}

Started TableHandle::get_encoded(const MutableData& data, const codec::CodecRef& codec, const CallOptions& options) {
  if (const base::Status wrong = check_encoded(); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = check_shape({}, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  return ask_for(true, {}, {static_cast<std::byte*>(data.values), spec_.bytes()}, codec, options);
}

EncodedPieces TableHandle::encoded_pieces(const codec::Codec& codec) const {
  std::vector<table::ChunkRange> planned = table::plan_all(spec_, table_->servers.size());
  EncodedPieces all{.pieces = {}, .bytes = table::place_answers(planned, codec)};
  for (const table::ChunkRange& piece : planned) all.pieces.push_back({piece.offset, piece.count, piece.encoded_at});
  return all;
}

Started TableHandle::get_pieces(std::span<std::byte> out, const codec::CodecRef& codec, const CallOptions& options) {
  if (const base::Status wrong = check_encoded(); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  return ask_for(true, {}, out, codec, options, true);
}

}  // namespace mv::api
