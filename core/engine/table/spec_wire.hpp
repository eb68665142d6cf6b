#pragma once
// Between the wire's and the library's form of a table's spec.

#include "shard/spec.hpp"
#include "wire/frame.hpp"

namespace mv::table {

shard::UpdaterSpec read_updater(const wire::Updater* updater);
flatbuffers::Offset<wire::Updater> write_updater(flatbuffers::FlatBufferBuilder& fbb, const shard::UpdaterSpec& updater);

shard::Spec read_spec(const wire::TableSpec& spec);
/// Several specs into one message: what an updater is called is written once where neighbours have the same.
class SpecWriter {
 public:
  explicit SpecWriter(flatbuffers::FlatBufferBuilder& fbb) : fbb_(fbb) {}
  flatbuffers::Offset<wire::TableSpec> write(const shard::Spec& spec);

 private:
  flatbuffers::FlatBufferBuilder& fbb_;
  const shard::UpdaterSpec* last_ = nullptr;
  flatbuffers::Offset<wire::Updater> updater_;
};
flatbuffers::Offset<wire::TableSpec> write_spec(flatbuffers::FlatBufferBuilder& fbb, const shard::Spec& spec);

/// Whether a spec that came over the wire is one that clients may send; the rest of the core relies on it.
base::Status check_spec(const shard::Spec& spec);

}  // namespace mv::table
