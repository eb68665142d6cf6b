#include "wire/objects_generated.h"

#include "wire/frame.hpp"

namespace mv::wire {

namespace {
/// Both are views of the same bytes, generated from one schema.
objects::MessageT unpacked(const Message& message) {
  objects::MessageT object;
  reinterpret_cast<const objects::Message&>(message).UnPackTo(&object);
  return object;
}
}  // namespace

std::vector<std::byte> copy_header(const Message& message) {
  const objects::MessageT object = unpacked(message);
  flatbuffers::FlatBufferBuilder fbb;
  fbb.Finish(objects::Message::Pack(fbb, &object));
  const auto* begin = reinterpret_cast<const std::byte*>(fbb.GetBufferPointer());
  return {begin, begin + fbb.GetSize()};
}

base::Frame FrameBuilder::copy(const Message& message, const base::PayloadRef& payload) {
  const objects::MessageT object = unpacked(message);
  fbb_.ForceDefaults(true);  // stamp() can only change fields that are present
  const flatbuffers::Offset<Message> copied(objects::Message::Pack(fbb_, &object).o);
  fbb_.ForceDefaults(false);
  if (payload == nullptr) return assemble(copied, {}, nullptr);
  return payload->size() <= kSmallPayloadBytes ? assemble(copied, payload->bytes(), nullptr) : assemble(copied, {}, payload);
}

}  // namespace mv::wire
