// TLS before authentication: one side of its handshake, against any input. It never ends open, because the input can't know the key; what it
// keeps and puts out is bounded, and every error has a message.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "transport/tls/tls.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mv::transport;
  using State = TlsStream::State;
  static const auto kContext = make_tls({});
  if (!kContext.ok()) abort();
  if (size < 2) return 0;
  TlsContext::Key key;
  key.fill(std::byte{0x5a});
  const auto made = kContext.value()->psk(/*dials=*/data[0] % 2 == 0, key);
  if (!made.ok()) abort();
  TlsStream& stream = *made.value();
  const size_t step = data[1] * 16u + 1u;
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size)).subspan(2);
  while (!rest.empty() && stream.state() == State::kGreeting) {
    const std::span<std::byte> room = stream.room();
    const size_t taken = std::min({step, rest.size(), room.size()});
    if (taken == 0) abort();
    std::copy_n(rest.begin(), taken, room.begin());
    stream.arrived(taken);
    rest = rest.subspan(taken);
    if (stream.output().size() > (16 << 10)) abort();
  }
  std::byte plain[16];
  if (stream.state() == State::kOpen || stream.open(plain) != 0 || stream.seal(plain) != 0) abort();
  if (stream.state() == State::kFailed && stream.why().text().empty()) abort();
  return 0;
}
