// The other end of a shared-memory transport, for tests that kill it at any moment:
//
//   transport_shm_peer INCARNATION ADDRESS PEER    dials, prints "connected", then sends endlessly
//
// Exits with 3 as soon as it receives a torn message.

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/shared_memory.hpp"
#include "node.hpp"

int main(int argc, char** argv) {
  using namespace mv::test;
  if (argc < 4) return 2;
  mv::transport::TcpOptions options;
  options.self = std::stoull(argv[1]);
  const Peer peer = std::stoull(argv[3]);
  Node node(Kind::kShm, options);
  node.dial(argv[2]);
  if (!node.wait([](const Record& record) { return !record.connected.empty(); })) return 1;
  std::printf("connected\n");
  std::fflush(stdout);
  const auto memory = mv::base::SharedMemory::make("peer", 256 << 10).value();
  mv::base::SharedMemory::enlist(memory);
  const auto bytes = pattern(7, 256 << 10);
  std::memcpy(memory->data(), bytes.data(), bytes.size());
  uint64_t random = options.self;
  for (uint64_t seq = 8;; ++seq) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if ((random >> 60) == 0)
      node.send(peer, 7, mv::base::Payload::kept({memory->data(), 256 << 10}, memory));
    else
      node.send(peer, seq, (random >> 33) % ((random >> 61) == 0 ? 3'000'000 : 5'000));
    if (seq % 64 == 0) {
      const Record record = node.record();
      for (const Heard& message : record.messages)
        if (!message.intact) _exit(3);
      if (!record.lost.empty() || getppid() == 1) _exit(0);
    }
  }
}
