// transport/shm between processes. One is killed in the middle of reading and writing; the other one goes on and receives only whole
// messages.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "node.hpp"
#include "process.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace transport = mv::transport;

transport::TcpOptions options_of(Peer self) {
  transport::TcpOptions options;
  options.self = self;
  return options;
}

size_t count_shared_mappings() {
  size_t count = 0;
  char line[512];
  FILE* maps = std::fopen("/proc/self/maps", "r");
  while (std::fgets(line, sizeof line, maps) != nullptr) count += std::strstr(line, "memfd:") != nullptr;
  std::fclose(maps);
  return count;
}

void a_peer_killed_at_any_moment_leaves_whole_messages_and_no_memory(void**) {
  constexpr Peer kRounds = 30;
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  uint64_t random = 42;
  size_t heard = 0;
  for (Peer self = 100; self < 100 + kRounds; ++self) {
    Process peer({SHM_PEER_PROGRAM, std::to_string(self), address, "1"});
    assert_string_equal(peer.line().c_str(), "connected");
    assert_true(node.wait([&](const Record& record) { return record.connections_of(self) == 1; }));
    random = random * 6364136223846793005u + 1442695040888963407u;
    const Nanos until = node.loop().now() + std::chrono::microseconds(1000 + (random >> 33) % 60'000);
    for (uint64_t seq = 1; node.loop().now() < until; ++seq) node.send(self, seq, (seq * 7919) % 100'000);
    peer.kill();
    assert_true(node.wait([&](const Record& record) { return record.has_lost(self); }));
    for (const Heard& message : node.record().messages) assert_true(message.intact);
    heard = node.record().messages.size();
  }
  assert_true(heard > kRounds);
  node.run([] {});
  assert_int_equal(node.record().violations.size(), 0);
  assert_true(count_shared_mappings() <= 2);
}

void a_stopped_peer_delays_no_other(void**) {
  Node node(Kind::kShm, options_of(1));
  const std::string address = node.listen();
  Process peer({SHM_PEER_PROGRAM, "100", address, "1"});
  assert_string_equal(peer.line().c_str(), "connected");
  peer.signal(SIGSTOP);
  for (uint64_t seq = 1; seq <= 20; ++seq) node.send(100, seq, 1 << 20);  // more than the ring holds
  Node other(Kind::kShm, options_of(2));
  other.dial(address);
  assert_true(other.wait([](const Record& record) { return record.connections_of(1) == 1; }));
  other.send(1, 1, 10);
  assert_true(node.wait([](const Record& record) { return record.messages_of(2) == 1; }));
  assert_false(node.record().has_lost(100));  // heartbeats detect silence, a layer above
  const Nanos begun = node.loop().now();
  node.close(100);
  assert_true(node.stop());
  assert_true(node.loop().now() - begun < 10s);
  peer.signal(SIGCONT);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_peer_killed_at_any_moment_leaves_whole_messages_and_no_memory),
      cmocka_unit_test(a_stopped_peer_delays_no_other),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
