#pragma once
// Conversions between codecs and their form in messages.

#include "codec/codec.hpp"
#include "wire/frame.hpp"

namespace mv::codec {

/// A received codec, checked; null for none. MV_EPROTOCOL.
base::Result<CodecRef> from_wire(const wire::Codec* codec);
/// Null for none.
flatbuffers::Offset<wire::Codec> to_wire(flatbuffers::FlatBufferBuilder& fbb, const Codec* codec);

}  // namespace mv::codec
