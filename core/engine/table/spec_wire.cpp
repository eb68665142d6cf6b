#include "engine/table/spec_wire.hpp"

#include "shard/updater/updater.hpp"

namespace mv::table {

shard::UpdaterSpec read_updater(const wire::Updater* updater) {
  shard::UpdaterSpec spec;
  if (updater == nullptr) return spec;
  if (updater->name() != nullptr) spec.name = updater->name()->str();
  if (updater->parameters() != nullptr) spec.parameters.assign(updater->parameters()->begin(), updater->parameters()->end());
  return spec;
}

flatbuffers::Offset<wire::Updater> write_updater(flatbuffers::FlatBufferBuilder& fbb, const shard::UpdaterSpec& updater) {
  return wire::CreateUpdaterDirect(fbb, updater.name.c_str(), &updater.parameters);
}

shard::Spec read_spec(const wire::TableSpec& wire) {
  shard::Spec spec;
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
  spec.device = wire.device();
  return spec;
}

flatbuffers::Offset<wire::TableSpec> SpecWriter::write(const shard::Spec& spec) {
  if (last_ == nullptr || !(*last_ == spec.updater)) updater_ = write_updater(fbb_, spec.updater);
  last_ = &spec.updater;
  return wire::CreateTableSpecDirect(fbb_, spec.name.c_str(), static_cast<wire::TableKind>(spec.kind), static_cast<wire::DType>(spec.dtype),
                                     spec.rows, spec.cols, spec.flags, updater_, spec.staleness, spec.initial, spec.initial_range, spec.seed,
                                     spec.capacity, spec.home, spec.device);
}

flatbuffers::Offset<wire::TableSpec> write_spec(flatbuffers::FlatBufferBuilder& fbb, const shard::Spec& spec) { return SpecWriter(fbb).write(spec); }

base::Status check_spec(const shard::Spec& spec) {
  constexpr uint64_t kMost = UINT64_C(1) << 62;
  const auto refuse = [&] { return base::error(MV_EPROTOCOL, "table \"{}\": invalid spec", spec.name); };
  if (spec.kind < MV_ARRAY || spec.kind > MV_KEYVALUE || !tensor::is_table_dtype(spec.dtype) || spec.cols == 0) return refuse();
  if ((spec.rows == 0) != (spec.kind == MV_KEYVALUE) || spec.staleness < MV_UNSET) return refuse();
  if (spec.cols > kMost / spec.element_bytes() || spec.rows > kMost / spec.row_bytes()) return refuse();
  if (spec.is_keyed() && (spec.row_bytes() > shard::kStripeBytes || spec.home != 0)) return refuse();
  if (spec.device < shard::kHost || (spec.is_on_device() && spec.capacity != 0)) return refuse();
  return shard::check_updater(spec.updater, spec.dtype);
}

}  // namespace mv::table
