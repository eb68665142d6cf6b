// The receiver of the shared-memory transport on a ring with untrusted content. The first bytes give the number of steps in which the ring
// is filled, and the other options.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/shm/receiver.hpp"

namespace {

using namespace mv;

constexpr size_t kRing = 64 << 10;

struct Listener : base::LinkEvents {
  void on_connected(base::Peer, const std::string&) override {}
  void on_dial_failed(const std::string&, const base::Status&) override {}
  void on_lost(base::Peer, const base::Status&) override {}
  void on_message(base::Peer, const wire::Message& message, std::span<const std::byte> payload) override {
    if (message.body() == nullptr || reinterpret_cast<uintptr_t>(payload.data()) % 8 != 0) abort();
    for (std::byte byte : payload) sum += static_cast<unsigned>(byte);
  }
  base::SinkRef on_header(base::Peer, const wire::Message&, size_t bytes) override {
    if (choices % 3 == 0) return base::Sink::nowhere();
    memory.reset(new std::byte[bytes]);
    return base::Sink::into({memory.get(), bytes});
  }
  void on_payload(base::Peer, const wire::Message& message, base::Sink& done) override {
    if (message.body() == nullptr) abort();
    for (std::byte byte : done.memory()) sum += static_cast<unsigned>(byte);
  }
  unsigned choices = 0;
  unsigned long sum = 0;
  std::unique_ptr<std::byte[]> memory;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  // Allocated with the exact size, so that a sanitizer detects an overrun.
  const std::unique_ptr<std::byte[]> ring(new std::byte[kRing]());
  const std::span<const std::byte> records = std::as_bytes(std::span(data, size)).subspan(4);
  const size_t begin = data[1] >= 128 ? kRing / 2 : 0;  // as if earlier records had been read
  std::memcpy(ring.get() + begin, records.data(), std::min(records.size(), kRing - begin));
  if (records.size() > kRing - begin)
    std::memcpy(ring.get(), records.data() + kRing - begin, std::min(records.size() - (kRing - begin), begin));

  static const auto segment = base::SharedMemory::make("fuzz", 4096).value();
  transport::Control peer{}, own{};
  Listener listener;
  listener.choices = data[0];
  transport::ShmReceiver receiver(
      listener, 9, peer, ring.get(), kRing, own, [](uint64_t number) { return number == 1 ? segment : nullptr; },
      [](uint64_t) {});
  if (begin > 0) {  // skip marks of 16 bytes have no effect; only the position matters
    peer.written = begin;
    if (!receiver.pass_over()) abort();
  }
  const uint64_t end = begin + transport::record_bytes(std::min(records.size(), kRing));
  const uint64_t step = (data[2] + 1) * uint64_t{16} * (data[3] >= 128 ? 64 : 1);
  while (peer.written < end) {
    peer.written = std::min<uint64_t>(end, peer.written + step) + (data[3] == 7 ? 8 : 0);
    if (!receiver.take(1 << 20).ok() || receiver.goodbye()) break;
    if (own.read > peer.written) abort();
  }
  return 0;
}
