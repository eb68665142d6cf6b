#pragma once
// Test doubles of the engines' surroundings: a clock that the test sets, and a link that only stores messages.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "wire/frame.hpp"

namespace mv::unit {

class StillClock final : public base::Clock {
 public:
  base::Nanos now() const override { return base::Nanos(0); }
};

class KeepingLink final : public base::Link {
 public:
  void dial(const std::string&) override {}
  void send(base::Peer, const base::Frame& frame) override { sent.push_back(frame); }
  void close(base::Peer) override {}
  std::vector<base::Frame> take() { return std::exchange(sent, {}); }

  std::vector<base::Frame> sent;
};

inline const wire::Message& message_of(const base::Frame& frame) {
  return *flatbuffers::GetRoot<wire::Message>(frame.head.data() + wire::kPrefixBytes);
}

inline std::span<const std::byte> payload_of(const base::Frame& frame) {
  if (frame.tail != nullptr) return frame.tail->bytes();
  const auto prefix = wire::read_prefix(std::span(frame.head).first(wire::kPrefixBytes)).value();
  return std::span(frame.head).subspan(wire::kPrefixBytes + wire::padded(prefix.header_bytes), prefix.payload_bytes);
}

}  // namespace mv::unit
