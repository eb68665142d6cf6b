#include "wire/objects_generated.h"

#include "wire/frame.hpp"

namespace mv::wire {

std::vector<std::byte> copy_header(const Message& message) {
  // Both are views of the same bytes, generated from one schema.
  objects::MessageT object;
  reinterpret_cast<const objects::Message&>(message).UnPackTo(&object);
  flatbuffers::FlatBufferBuilder fbb;
  fbb.Finish(objects::Message::Pack(fbb, &object));
  const auto* begin = reinterpret_cast<const std::byte*>(fbb.GetBufferPointer());
  return {begin, begin + fbb.GetSize()};
}

}  // namespace mv::wire
