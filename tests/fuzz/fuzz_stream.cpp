// The receiver, fed in pieces. The first bytes decide how the stream is split and where payloads go.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/tcp/receiver.hpp"

namespace {

using namespace mv;

struct Listener : base::LinkEvents {
  void on_connected(base::Peer, const std::string&) override {}
  void on_dial_failed(const std::string&, const base::Status&) override {}
  void on_lost(base::Peer, const base::Status&) override {}
  void on_message(base::Peer, const wire::Message& message, std::span<const std::byte> payload) override {
    if (message.body() == nullptr || reinterpret_cast<uintptr_t>(payload.data()) % 8 != 0) abort();
    for (std::byte byte : payload) sum += static_cast<unsigned>(byte);
    maybe_stop();
  }
  base::SinkRef on_header(base::Peer, const wire::Message&, size_t bytes) override {
    maybe_stop();
    if (choices % 3 == 0) return base::Sink::nowhere();
    memory.reset(new std::byte[bytes]);
    sink = base::Sink::into({memory.get(), bytes});
    return sink;
  }
  void on_payload(base::Peer, const wire::Message& message, base::Sink& done) override {
    if (message.body() == nullptr) abort();
    for (std::byte byte : done.memory()) sum += static_cast<unsigned>(byte);
    sink.reset();
    maybe_stop();
  }
  void maybe_stop() {
    if (stop_after != 0 && --stop_after == 0) receiver->stop();
  }
  unsigned choices = 0, stop_after = 0;
  unsigned long sum = 0;
  std::unique_ptr<std::byte[]> memory;
  base::SinkRef sink;
  transport::Receiver* receiver = nullptr;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  Listener listener;
  listener.choices = data[0];
  listener.stop_after = data[1] >= 128 ? data[1] - 127u : 0;
  const size_t step = data[2] + 1u + (data[3] >= 128 ? 4096u : 0u);
  const unsigned discard_at = data[3] % 16;
  transport::Receiver receiver(listener, 9);
  listener.receiver = &receiver;
  std::span<const std::byte> stream = std::as_bytes(std::span(data, size)).subspan(4);
  for (unsigned piece = 0; !stream.empty() && !receiver.stopped(); ++piece) {
    if (piece == discard_at && listener.sink) {
      listener.sink->discard();
      listener.memory.reset();
    }
    const auto room = receiver.room();
    const size_t taken = std::min({step, stream.size(), room.bytes()});
    if (taken == 0) abort();
    const size_t first = std::min(taken, room.first.size());
    std::memcpy(room.first.data(), stream.data(), first);
    if (taken > first) std::memcpy(room.second.data(), stream.data() + first, taken - first);
    stream = stream.subspan(taken);
    if (!receiver.received(taken).ok()) break;
  }
  return 0;
}
