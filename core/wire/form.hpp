#pragma once
// Frames that differ in numbers only.

#include <cstddef>
#include <span>
#include <vector>

#include "wire/frame.hpp"

namespace mv::wire {

/// Makes frames of one kind of message that is sent often. The header is built once; each frame is a copy of it with other numbers, which takes
/// a fraction of the time.
template <typename T>
class Form {
 public:
  /// @param make  creates the body in a builder, with all fields that frames will change, also if they are 0
  template <typename Make>
  Form(Body kind, Make make) {
    FrameBuilder builder;
    builder.fbb().ForceDefaults(true);
    blank_ = builder.finish(kind, make(builder.fbb())).head;
  }

  /// @param fill  changes the body by its mutate_...()
  template <typename Fill>
  base::Frame finish(Fill fill, const base::PayloadRef& payload = nullptr) const {
    if (payload != nullptr && payload->size() <= kSmallPayloadBytes) return finish_small(fill, payload->bytes());
    base::Frame frame = frame_like(blank_, {}, payload);
    fill(body_of(frame));
    return frame;
  }
  /// The same with a payload of at most kSmallPayloadBytes, copied.
  template <typename Fill>
  base::Frame finish_small(Fill fill, std::span<const std::byte> payload) const {
    base::Frame frame = frame_like(blank_, payload, nullptr);
    fill(body_of(frame));
    return frame;
  }

 private:
  static T& body_of(base::Frame& frame) {
    return *static_cast<T*>(flatbuffers::GetMutableRoot<Message>(frame.head.data() + kPrefixBytes)->mutable_body());
  }

  std::vector<std::byte> blank_;  ///< a frame without a payload
};

}  // namespace mv::wire
