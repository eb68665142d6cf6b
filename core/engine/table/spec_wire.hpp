#pragma once
// Converts a table's spec between its wire format and the library's form.

#include "shard/spec.hpp"
#include "wire/frame.hpp"

namespace mv::table {

shard::UpdaterSpec read_updater(const wire::Updater* updater);
flatbuffers::Offset<wire::Updater> write_updater(flatbuffers::FlatBufferBuilder& fbb, const shard::UpdaterSpec& updater);

shard::Spec read_spec(const wire::TableSpec& spec);
/// Writes several specs into one message. Neighbours with the same updater share one copy of it.
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

/// Whether clients may send this spec, which came over the wire. The rest of the core relies on it.
base::Status check_spec(const shard::Spec& spec);

}  // namespace mv::table
