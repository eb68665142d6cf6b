#include "codec/wire.hpp"

namespace mv::codec {

base::Result<CodecRef> from_wire(const wire::Codec* codec) {
  if (codec == nullptr) return CodecRef();
  Spec spec;
  if (codec->name() != nullptr) spec.name = codec->name()->str();
  if (codec->parameters() != nullptr) spec.parameters.assign(codec->parameters()->begin(), codec->parameters()->end());
  if (const base::Status wrong = check(spec); !wrong.ok()) return base::Status(MV_EPROTOCOL, wrong.text());
  return make(spec);
}

flatbuffers::Offset<wire::Codec> to_wire(flatbuffers::FlatBufferBuilder& fbb, const Codec* codec) {
  if (codec == nullptr) return 0;
  return wire::CreateCodecDirect(fbb, codec->spec().name.c_str(), &codec->spec().parameters);
}

}  // namespace mv::codec
