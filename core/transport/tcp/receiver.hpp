#pragma once
// Turns a stream of bytes into messages. It owns no socket: whoever has bytes asks where they go, puts them there and tells how
// many came, so that large payloads are read straight into their destination.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/link.hpp"
#include "wire/frame.hpp"

namespace mv::transport {

class Receiver {
 public:
  /// The buffer in which frames are verified and shown in place.
  static constexpr size_t kBufferBytes = 256 << 10;
  /// Frames up to this size are always waited for there; larger ones go to a sink when they are not whole.
  static constexpr size_t kInPlaceBytes = 16 << 10;
  /// What is read ahead behind a payload: another large one is likely to follow, and what came of it with its header is copied.
  static constexpr size_t kAheadBytes = 4 << 10;

  Receiver(base::LinkEvents& events, base::Peer from);

  /// Where the next bytes go: fill `first`, then `second`. `first` is never empty; `second` may be.
  struct Room {
    std::span<std::byte> first, second;
    size_t bytes() const { return first.size() + second.size(); }
  };
  Room room();
  /// `bytes` have been put there, at least 1. Calls LinkEvents for what became whole. MV_EPROTOCOL ends the stream.
  base::Status received(size_t bytes);

  /// Calls LinkEvents no more: from within one of its calls, or after.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }
  /// The peer said goodbye; what it sent before has been shown.
  bool goodbye() const { return goodbye_; }
  /// In the middle of a frame.
  bool inside_a_frame() const { return state_ != State::kFrames || begin_ != end_; }

 private:
  enum class State { kFrames, kHeader, kPayload };

  base::Status take_frames();
  base::Status take_frame(const wire::Prefix& prefix, size_t available, bool& taken);
  base::Status take_header(size_t bytes);
  base::Status take_payload(size_t bytes);
  void begin_payload(const wire::Prefix& prefix, std::span<const std::byte> arrived);
  void end_payload();

  base::LinkEvents& events_;
  const base::Peer from_;
  State state_ = State::kFrames;
  bool stopped_ = false;
  bool goodbye_ = false;
  bool after_payload_ = false;  ///< the last frame went to a sink

  // kFrames: [begin_, end_) has arrived; skip_ bytes of padding come first. Frames start on multiples of 8.
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0, skip_ = 0;

  // kHeader, kPayload: one frame that is not whole.
  wire::Prefix prefix_;
  std::vector<std::byte> header_;  // padded
  size_t header_got_ = 0;
  base::SinkRef sink_;
  size_t payload_got_ = 0;  // discarding: padding too
};

}  // namespace mv::transport
