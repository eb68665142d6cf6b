#pragma once
// The parser that turns a stream of bytes into messages. It owns no socket: its user asks where the next bytes go,
// reads them to that place and reports their number. Large payloads are read directly into their destination that way.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/link.hpp"
#include "wire/frame.hpp"

namespace mv::transport {

class Receiver {
 public:
  /// Size of the buffer, in which frames are verified and delivered in place.
  static constexpr size_t kBufferBytes = 256 << 10;
  /// Frames up to this size are always completed in the buffer; larger ones go to a sink if they are incomplete.
  static constexpr size_t kInPlaceBytes = 16 << 10;
  /// Bytes to read ahead behind a payload. The limit is small because another large payload is likely to follow, and
  /// the part of it that arrives with its header must be copied.
  static constexpr size_t kAheadBytes = 4 << 10;

  Receiver(base::LinkEvents& events, base::Peer from);

  /// The place for the next bytes: fill `first`, then `second`. `first` is never empty; `second` may be.
  struct Room {
    std::span<std::byte> first, second;
    size_t bytes() const { return first.size() + second.size(); }
  };
  Room room();
  /// `bytes`, at least 1, are now in room(). Calls LinkEvents for completed messages, and for a part of one.
  /// MV_EPROTOCOL ends the stream.
  base::Status received(size_t bytes);

  /// Makes no further calls to LinkEvents. May be called from within such a call.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }
  /// The peer has sent a goodbye; everything before it has been delivered.
  bool goodbye() const { return goodbye_; }
  /// Whether the stream is in the middle of a frame.
  bool inside_a_frame() const { return state_ != State::kFrames || begin_ != end_; }

 private:
  enum class State { kFrames, kHeader, kPayload };

  base::Status take(size_t bytes);
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

  // kHeader, kPayload: one incomplete frame.
  wire::Prefix prefix_;
  std::vector<std::byte> header_;  // padded
  size_t header_got_ = 0;
  base::SinkRef sink_;
  size_t payload_got_ = 0;  // if the payload is discarded, includes padding
};

}  // namespace mv::transport
