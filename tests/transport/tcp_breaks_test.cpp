// transport/tcp: the break, death, restart and stop of a peer, as the other side sees them. With
// the argument "tls", the same with encryption.

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "node.hpp"
#include "process.hpp"

#include "cmocka.hpp"

namespace {
std::atomic<int> refused_writes{0};  ///< the number of writes that will fail
}

/// Replaces the C library's function for the transport.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (refused_writes.load() > 0 && refused_writes.fetch_sub(1) > 0) {
    errno = ENOBUFS;
    return -1;
  }
  // Not the bare system call: ThreadSanitizer's own function records that the receiver comes after the sender.
  static const auto next = reinterpret_cast<ssize_t (*)(int, const msghdr*, int)>(dlsym(RTLD_NEXT, "sendmsg"));
  return next(fd, message, flags);
}

namespace {

using namespace mv::test;
namespace transport = mv::transport;

Kind transport_kind = Kind::kTcp;

transport::TcpOptions options_of(Peer self, Nanos grace = 1s) {
  transport::TcpOptions options;
  options.self = self;
  options.reconnect_grace = grace;
  return options;
}

void assert_no_violations(Node& node) {
  for (const std::string& violation : node.record().violations) fail_test("broken promise: %s", violation.c_str());
}

void a_broken_connection_is_mended(void**) {
  transport::TcpOptions options;
  options.reconnect_grace = kPatience;
  Pair pair(transport_kind, options);
  for (int round = 0; round < 6; ++round) {
    const size_t connections = static_cast<size_t>(round) + 2;
    round % 2 ? pair.a->cut(22) : pair.b->cut(11);
    assert_true(pair.a->wait([&](const Record& record) { return record.connections_of(22) == connections; }));
    assert_true(pair.b->wait([&](const Record& record) { return record.connections_of(11) == connections; }));
    pair.a->send(22, connections, 100'000);
    pair.b->send(11, connections, 100'000);
    for (Node* node : {pair.a.get(), pair.b.get()}) {
      assert_true(node->wait([&](const Record& record) { return record.messages.size() == connections - 1; }));
      assert_true(node->record().messages.back().intact);
    }
  }
  assert_int_equal(pair.a->record().lost.size() + pair.b->record().lost.size(), 0);
  assert_no_violations(*pair.a);
  assert_no_violations(*pair.b);
}

void a_write_that_fails_breaks_the_connection_at_once(void**) {
  transport::TcpOptions options;
  options.reconnect_grace = kPatience;
  Pair pair(transport_kind, options);
  refused_writes = 1;
  pair.a->send(22, 1, 100);
  assert_true(pair.a->wait([](const Record& record) { return record.connections_of(22) == 2; }));
  pair.a->send(22, 2, 100);
  assert_true(pair.b->wait([](const Record& record) { return record.messages.size() == 1; }));
  assert_no_violations(*pair.a);
}

void a_write_that_fails_during_the_hello_says_why(void**) {
  Node listener(transport_kind, options_of(11)), dialer(transport_kind, options_of(22));
  const std::string address = listener.listen();
  refused_writes = 1;
  dialer.dial(address);
  assert_true(dialer.wait([](const Record& record) { return record.dial_failed.size() == 1; }));
  assert_non_null(strstr(dialer.record().dial_failed[0].text.c_str(), std::strerror(ENOBUFS)));
}

void a_payload_cut_in_the_middle_is_never_shown(void**) {
  transport::TcpOptions options;
  options.reconnect_grace = kPatience;
  Pair pair(transport_kind, options);
  for (uint64_t round = 1; round <= 10; ++round) {
    pair.a->sink_for = [&](uint64_t, size_t bytes) {
      pair.a->loop().post([&] { pair.a->transport().cut(22); });
      auto memory = std::make_shared<std::vector<std::byte>>(bytes);
      return mv::base::Sink::into(*memory, memory);
    };
    pair.b->send(11, round * 2, 12 << 20);
    assert_true(pair.a->wait([&](const Record& record) { return record.connections_of(22) == round + 1; }));
    assert_true(pair.b->wait([&](const Record& record) { return record.connections_of(11) == round + 1; }));
    pair.b->send(11, round * 2 + 1, 10);
    assert_true(pair.a->wait(
        [&](const Record& record) { return !record.messages.empty() && record.messages.back().seq == round * 2 + 1; }));
  }
  for (const Heard& message : pair.a->record().messages) assert_true(message.intact);
  assert_no_violations(*pair.a);
}

void a_killed_peer_is_lost_at_once(void**) {
  struct Case {
    const char* mode;
    Nanos within;
  };
  // A peer that does not listen cannot be probed, so its loss takes the whole grace period.
  for (const Case& each : {Case{"listen", 1s}, Case{"dial", 1s}, Case{"dial-only", 3s}}) {
    const Nanos grace = std::string(each.mode) == "dial-only" ? Nanos(300ms) : Nanos(kPatience);
    Node node(transport_kind, options_of(1, grace));
    const std::string address = node.listen();
    Process peer({PEER_PROGRAM, "2", each.mode, address});
    const std::string said = peer.line();
    if (std::string(each.mode) == "listen") node.dial(said);
    assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
    const Nanos killed = node.loop().now();
    peer.kill();
    assert_true(node.wait([](const Record& record) { return record.has_lost(2); }));
    const Ended end = node.record().lost[0];
    assert_int_equal(end.code, MV_EPEERLOST);
    assert_non_null(strstr(end.text.c_str(), "127.0.0.1:"));
    assert_true(end.at - killed < each.within * 5);  // well before the grace of 20 s
    assert_no_violations(node);
  }
}

void a_stopped_peer_is_not_lost_by_the_transport(void**) {
  Node node(transport_kind, options_of(1, 100ms));
  const std::string address = node.listen();
  Process peer({PEER_PROGRAM, "2", "dial", address});
  assert_string_equal(peer.line().c_str(), "connected");
  peer.signal(SIGSTOP);
  std::this_thread::sleep_for(500ms);
  assert_int_equal(node.record().lost.size(), 0);  // heartbeats detect silence, a layer above
  peer.signal(SIGCONT);
}

void a_stopped_peer_can_be_closed_and_left(void**) {
  Node node(transport_kind, options_of(1));
  const std::string address = node.listen();
  Process peer({PEER_PROGRAM, "2", "dial", address});
  assert_string_equal(peer.line().c_str(), "connected");
  peer.signal(SIGSTOP);
  node.send(2, 1, 30 << 20);  // more than the sockets buffer
  node.close(2);
  const Nanos begun = node.loop().now();
  assert_true(node.stop());
  assert_true(node.loop().now() - begun < 10s);
  peer.signal(SIGCONT);
}

void a_restarted_peer_is_never_taken_for_its_old_self(void**) {
  Node node(transport_kind, options_of(1, kPatience));
  auto old = std::make_unique<Node>(transport_kind, options_of(2, kPatience));
  const std::string address = old->listen();
  node.dial(address);
  assert_true(old->wait([](const Record& record) { return record.connections_of(1) == 1; }));
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  // The old node's socket goes on listening in the new one, so dials that try to resume are answered.
  Node young(transport_kind, options_of(3));
  node.loop().post([] { std::this_thread::sleep_for(200ms); });
  old.reset();
  assert_true(young.listen(address).ok());
  assert_true(node.wait([](const Record& record) { return record.has_lost(2); }));
  assert_int_equal(node.record().connections_of(3), 0);
  node.dial(address);
  assert_true(node.wait([](const Record& record) { return record.connections_of(3) == 1; }));
  assert_no_violations(node);
}

void a_peer_that_does_not_come_back_is_lost_after_the_grace(void**) {
  Node node(transport_kind, options_of(1, 300ms));
  const std::string address = node.listen();
  auto peer = std::make_unique<Node>(transport_kind, options_of(2));  // does not listen
  peer->dial(address);
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  const Nanos gone = node.loop().now();
  peer.reset();
  assert_true(node.wait([](const Record& record) { return record.has_lost(2); }));
  const Ended end = node.record().lost[0];
  assert_true(end.at - gone >= 300ms);
  assert_non_null(strstr(end.text.c_str(), "0.3 s"));
  assert_no_violations(node);
}

void an_abandoned_peer_stays_abandoned(void**) {
  Node node(transport_kind, options_of(1, 100ms));
  const std::string address = node.listen();
  Node peer(transport_kind, options_of(2, kPatience));
  peer.dial(address);
  assert_true(peer.wait([](const Record& record) { return record.connections_of(1) == 1; }));
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  // This side notices the break at once, the other side only after this side has stopped waiting.
  std::atomic<bool> go{false};
  peer.loop().post([&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  node.cut(2);
  assert_true(node.wait([](const Record& record) { return record.has_lost(2); }));
  go = true;
  assert_true(peer.wait([](const Record& record) { return record.has_lost(1); }));
  assert_int_equal(node.record().connections_of(2), 1);
  assert_non_null(strstr(peer.record().lost[0].text.c_str(), "considers this process lost"));
  assert_no_violations(node);
  assert_no_violations(peer);
}

void breaks_in_heavy_traffic_keep_the_promises(void**) {
  transport::TcpOptions options;
  options.reconnect_grace = kPatience;
  Pair pair(transport_kind, options);
  uint64_t random = 3;
  for (uint64_t seq = 1; seq <= 400; ++seq) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if ((random >> 33) % 40 == 0) (random >> 40) % 2 ? pair.b->cut(11) : pair.a->cut(22);
    pair.b->send(11, seq, (random >> 35) % 60'000);
    pair.a->send(22, seq, (random >> 36) % 60'000);
  }
  for (Node* node : {pair.a.get(), pair.b.get()}) {
    const Peer other = node->self() == 11 ? 22 : 11;
    // There is one more connect than breaks; the last messages arrive.
    uint64_t probe = 1'000'000;
    const bool arrived = [&] {
      for (int i = 0; i < 200; ++i) {
        Node& sender = node == pair.a.get() ? *pair.b : *pair.a;
        sender.send(node->self(), ++probe, 10);
        if (node->wait([&](const Record& r) { return !r.messages.empty() && r.messages.back().seq >= 1'000'000; },
                       100ms))
          return true;
      }
      return false;
    }();
    assert_true(arrived);
    const Record record = node->record();
    assert_int_equal(record.lost.size(), 0);
    assert_true(record.connections_of(other) >= 2);
    uint64_t last = 0;
    for (const Heard& message : record.messages) {
      assert_true(message.intact);
      assert_true(message.seq > last);  // a break loses the end of the stream; it never duplicates or reorders
      last = message.seq;
    }
    assert_no_violations(*node);
  }
}

/// The number of sockets, epolls and eventfds in this process.
int count_descriptors_of_io() {
  int count = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    char link[64], target[64] = {};
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) <= 0) continue;
    if (std::strncmp(target, "socket:", 7) == 0 || std::strstr(target, "event") != nullptr) ++count;
  }
  return count;
}

void a_forked_child_leaves_the_connections_to_its_parent(void**) {
  const int before = count_descriptors_of_io();
  Pair pair(transport_kind);
  const int held = count_descriptors_of_io();
  assert_true(held > before);
  const pid_t child = fork();
  if (child == 0) {
    pair.a->loop().abandon_after_fork();
    pair.b->loop().abandon_after_fork();
    _exit(count_descriptors_of_io() - before);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  pair.b->send(11, 1, 100'000);
  assert_true(pair.a->wait([](const Record& record) { return record.messages.size() == 1; }));
  assert_int_equal(pair.a->record().connected.size(), 1);
  assert_int_equal(pair.a->record().lost.size() + pair.b->record().lost.size(), 0);
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) transport_kind = Kind::kTls;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_broken_connection_is_mended),
      cmocka_unit_test(a_write_that_fails_breaks_the_connection_at_once),
      cmocka_unit_test(a_write_that_fails_during_the_hello_says_why),
      cmocka_unit_test(a_payload_cut_in_the_middle_is_never_shown),
      cmocka_unit_test(a_killed_peer_is_lost_at_once),
      cmocka_unit_test(a_stopped_peer_is_not_lost_by_the_transport),
      cmocka_unit_test(a_stopped_peer_can_be_closed_and_left),
      cmocka_unit_test(a_restarted_peer_is_never_taken_for_its_old_self),
      cmocka_unit_test(a_peer_that_does_not_come_back_is_lost_after_the_grace),
      cmocka_unit_test(an_abandoned_peer_stays_abandoned),
      cmocka_unit_test(breaks_in_heavy_traffic_keep_the_promises),
      cmocka_unit_test(a_forked_child_leaves_the_connections_to_its_parent),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
