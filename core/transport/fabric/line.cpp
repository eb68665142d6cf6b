#include "transport/fabric/line.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace mv::transport {

LineToken line_token(const wire::Handshake::Key& key, base::Peer from, std::span<const std::byte> from_address, base::Peer to,
                     std::span<const std::byte> to_address) {
  std::string text = "polyverso fabric line";
  const auto add = [&](const void* bytes, size_t count) { text.append(static_cast<const char*>(bytes), count); };
  for (const uint64_t word : {from, to, static_cast<uint64_t>(from_address.size()), static_cast<uint64_t>(to_address.size())}) add(&word, sizeof word);
  add(from_address.data(), from_address.size());
  add(to_address.data(), to_address.size());
  static_assert(sizeof(wire::Handshake::Key) == crypto_auth_KEYBYTES);
  std::array<unsigned char, crypto_auth_BYTES> mac;
  crypto_auth(mac.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size(), reinterpret_cast<const unsigned char*>(key.data()));
  LineToken token;
  std::memcpy(token.data(), mac.data(), token.size());
  return token;
}

void post_frame(Fabric& fabric, const base::Frame& frame, const PostMessage& post) {
  constexpr size_t kMostHead = 4096;
  auto sending = std::make_unique<LineSending>();
  if (!frame.tail || frame.tail->size() == 0) {
    sending->body = frame.head;
    return post(LineKind::kFrame, {}, std::move(sending));
  }
  sending->tail = frame.tail;
  if (frame.tail->is_lent()) {
    // The lender may want its memory back while the peer reads it, and nothing could stop the peer.
    auto block = fabric.block(frame.tail->size());
    if (block.ok()) {
      sending->copy = std::move(block).value();
      std::memcpy(sending->copy->data(), frame.tail->bytes().data(), frame.tail->size());
    } else {
      sending->tail = base::Payload::copy(frame.tail->bytes());
    }
  }
  if (frame.head.size() <= std::min<size_t>(kMostHead, fabric.about().most_header - sizeof(LineHeader)))
    return post(LineKind::kTailed, frame.head, std::move(sending));
  auto head = std::make_unique<LineSending>();
  head->body = frame.head;
  post(LineKind::kHead, {}, std::move(head));
  post(LineKind::kTail, {}, std::move(sending));
}

base::Status send_message(Fabric& fabric, mv_fabric_line line, const LineHeader& header, std::span<const std::byte> head,
                          std::unique_ptr<LineSending> sending, LineSendings& sendings) {
  sending->header.resize(sizeof header + head.size());
  std::memcpy(sending->header.data(), &header, sizeof header);
  if (!head.empty()) std::memcpy(sending->header.data() + sizeof header, head.data(), head.size());
  std::span<const std::byte> body = sending->body;
  if (sending->tail) body = sending->copy ? std::span<const std::byte>(sending->copy->data(), sending->tail->size()) : sending->tail->bytes();
  LineSending* const key = sending.get();
  const auto sent = fabric.send(line, key->header, body, key);
  if (sent.ok() && !sent.value()) sendings[key] = std::move(sending);
  return sent.ok() ? base::Status() : sent.status();
}

}  // namespace mv::transport
