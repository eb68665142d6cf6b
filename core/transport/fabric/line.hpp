#pragma once
// The sending end of one line of a fabric: what FabricTransport and JobTransport have in common.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "transport/fabric/receiver.hpp"
#include "wire/handshake.hpp"

namespace mv::transport {

/// The token of the messages from one end of a line to the other.
LineToken line_token(const wire::Handshake::Key& key, base::Peer from, std::span<const std::byte> from_address, base::Peer to,
                     std::span<const std::byte> to_address);

/// A message on its way, whose memory the fabric reads.
struct LineSending {
  std::vector<std::byte> header, body;
  base::PayloadRef tail;
  std::unique_ptr<Fabric::Block> copy;
};
/// Those whose sends have not ended.
using LineSendings = std::map<const LineSending*, std::unique_ptr<LineSending>>;

/// Makes the messages of a frame, and passes each to `post`.
using PostMessage = std::function<void(LineKind kind, std::span<const std::byte> head, std::unique_ptr<LineSending> sending)>;
void post_frame(Fabric& fabric, const base::Frame& frame, const PostMessage& post);

/// Sends one message. `head` follows the header.
base::Status send_message(Fabric& fabric, mv_fabric_line line, const LineHeader& header, std::span<const std::byte> head,
                          std::unique_ptr<LineSending> sending, LineSendings& sendings);

}  // namespace mv::transport
