#include "engine/ps/spec_wire.hpp"

#include "table/updater/updater.hpp"

namespace mv::ps {

table::UpdaterSpec read_updater(const wire::Updater* updater) {
  table::UpdaterSpec spec;
  if (updater == nullptr) return spec;
  if (updater->name() != nullptr) spec.name = updater->name()->str();
  if (updater->parameters() != nullptr) spec.parameters.assign(updater->parameters()->begin(), updater->parameters()->end());
  return spec;
}

flatbuffers::Offset<wire::Updater> write_updater(flatbuffers::FlatBufferBuilder& fbb, const table::UpdaterSpec& updater) {
  return wire::CreateUpdaterDirect(fbb, updater.name.c_str(), &updater.parameters);
}

base::Result<codec::CodecRef> read_codec(const wire::Codec* codec) {
  if (codec == nullptr) return codec::CodecRef();
  codec::Spec spec;
  if (codec->name() != nullptr) spec.name = codec->name()->str();
  if (codec->parameters() != nullptr) spec.parameters.assign(codec->parameters()->begin(), codec->parameters()->end());
  if (const base::Status wrong = codec::check(spec); !wrong.ok()) return base::Status(MV_EPROTOCOL, wrong.text());
  return codec::make(spec);
}

flatbuffers::Offset<wire::Codec> write_codec(flatbuffers::FlatBufferBuilder& fbb, const codec::Codec* codec) {
  if (codec == nullptr) return 0;
  return wire::CreateCodecDirect(fbb, codec->spec().name.c_str(), &codec->spec().parameters);
}

table::Spec read_spec(const wire::TableSpec& wire) {
  table::Spec spec;
  if (wire.name() != nullptr) spec.name = wire.name()->str();
  spec.kind = static_cast<int32_t>(wire.kind());
  spec.dtype = static_cast<mv_dtype>(wire.dtype());
  spec.rows = wire.rows();
  spec.cols = wire.cols();
  spec.flags = wire.flags();
  spec.updater = read_updater(wire.updater());
  spec.staleness = wire.staleness();
  spec.initial = wire.initial();
  spec.initial_range = wire.initial_range();
  spec.seed = wire.seed();
  spec.capacity = wire.capacity();
  spec.home = wire.home();
  return spec;
}

flatbuffers::Offset<wire::TableSpec> SpecWriter::write(const table::Spec& spec) {
  if (last_ == nullptr || !(*last_ == spec.updater)) updater_ = write_updater(fbb_, spec.updater);
  last_ = &spec.updater;
  return wire::CreateTableSpecDirect(fbb_, spec.name.c_str(), static_cast<wire::TableKind>(spec.kind), static_cast<wire::DType>(spec.dtype),
                                     spec.rows, spec.cols, spec.flags, updater_, spec.staleness, spec.initial, spec.initial_range, spec.seed,
                                     spec.capacity, spec.home);
}

flatbuffers::Offset<wire::TableSpec> write_spec(flatbuffers::FlatBufferBuilder& fbb, const table::Spec& spec) { return SpecWriter(fbb).write(spec); }

base::Status check_spec(const table::Spec& spec) {
  constexpr uint64_t kMost = UINT64_C(1) << 62;
  const auto refuse = [&] { return base::error(MV_EPROTOCOL, "table \"{}\": a spec that no client sends", spec.name); };
  if (spec.kind < MV_ARRAY || spec.kind > MV_KEYVALUE || !tensor::is_table_dtype(spec.dtype) || spec.cols == 0) return refuse();
  if ((spec.rows == 0) != (spec.kind == MV_KEYVALUE) || spec.staleness < MV_UNSET) return refuse();
  if (spec.cols > kMost / spec.element_bytes() || spec.rows > kMost / spec.row_bytes()) return refuse();
  if (spec.is_keyed() && (spec.row_bytes() > table::kStripeBytes || spec.home != 0)) return refuse();
  return table::check_updater(spec.updater, spec.dtype);
}

}  // namespace mv::ps
