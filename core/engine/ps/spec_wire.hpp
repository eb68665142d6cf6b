#pragma once
// Between the wire's and the library's form of a table's spec.

#include "codec/codec.hpp"
#include "table/spec.hpp"
#include "wire/frame.hpp"

namespace mv::ps {

table::UpdaterSpec read_updater(const wire::Updater* updater);
flatbuffers::Offset<wire::Updater> write_updater(flatbuffers::FlatBufferBuilder& fbb, const table::UpdaterSpec& updater);

/// A codec that came over the wire, checked; null for none. MV_EPROTOCOL.
base::Result<codec::CodecRef> read_codec(const wire::Codec* codec);
/// Null for none.
flatbuffers::Offset<wire::Codec> write_codec(flatbuffers::FlatBufferBuilder& fbb, const codec::Codec* codec);

table::Spec read_spec(const wire::TableSpec& spec);
/// Several specs into one message: what an updater is called is written once where neighbours have the same.
class SpecWriter {
 public:
  explicit SpecWriter(flatbuffers::FlatBufferBuilder& fbb) : fbb_(fbb) {}
  flatbuffers::Offset<wire::TableSpec> write(const table::Spec& spec);

 private:
  flatbuffers::FlatBufferBuilder& fbb_;
  const table::UpdaterSpec* last_ = nullptr;
  flatbuffers::Offset<wire::Updater> updater_;
};
flatbuffers::Offset<wire::TableSpec> write_spec(flatbuffers::FlatBufferBuilder& fbb, const table::Spec& spec);

/// Whether a spec that came over the wire is one that clients may send; the rest of the core relies on it.
base::Status check_spec(const table::Spec& spec);

}  // namespace mv::ps
