// The promises of every transport (base/link.hpp, transport/transport.hpp). The argument names the transport: tcp, tls, shm, inproc,
// ucx, mpi or faulty.

#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "cmocka.hpp"
#include "node.hpp"
#include "transport/fabric/fabric_transport.hpp"
#include "transport/tcp/receiver.hpp"

namespace {

using namespace mv::test;
namespace base = mv::base;
namespace transport = mv::transport;

Kind transport_kind = Kind::kTcp;

transport::TcpOptions options_of(Peer self) {
  transport::TcpOptions options;
  options.self = self;
  return options;
}

void assert_no_violations(Node& node) {
  for (const std::string& violation : node.record().violations) fail_test("broken promise: %s", violation.c_str());
}
void assert_no_violations(Pair& pair) {
  assert_no_violations(*pair.a);
  assert_no_violations(*pair.b);
}

bool goes_by_ucx(Node& node, Peer peer) {
  bool does = false;
  node.run([&] { does = static_cast<transport::FabricTransport&>(node.transport()).carries(peer); });
  return does;
}

void a_dial_connects_both_sides(void**) {
  Pair pair(transport_kind);
  assert_true(pair.connected);
  if (transport_kind == Kind::kUcx) assert_true(goes_by_ucx(*pair.a, 22) && goes_by_ucx(*pair.b, 11));  // not by TCP, as a pair without it
  assert_string_equal(pair.b->record().connected[0].second.c_str(), pair.address.c_str());
  assert_no_violations(pair);
}

void messages_arrive_in_order_in_both_directions(void**) {
  Pair pair(transport_kind);
  constexpr uint64_t kCount = 500;
  for (uint64_t seq = 1; seq <= kCount; ++seq) {
    pair.b->send(11, seq, seq % 97);
    pair.a->send(22, seq, seq % 89);
  }
  for (auto* node : {pair.a.get(), pair.b.get()}) {
    assert_true(node->wait([&](const Record& record) { return record.messages.size() == kCount; }));
    uint64_t expected = 1;
    for (const Heard& message : node->record().messages) {
      assert_int_equal(message.seq, expected++);
      assert_true(message.intact);
    }
  }
  assert_no_violations(pair);
}

void payloads_of_every_size_arrive_whole(void**) {
  Pair pair(transport_kind);
  std::vector<size_t> sizes;
  for (size_t edge : {size_t{0}, size_t{8}, size_t{4096}, transport::Receiver::kInPlaceBytes, transport::Receiver::kBufferBytes,
                      size_t{1} << 20, size_t{4} << 20, size_t{9} << 20}) {
    for (size_t step = 0; step < 5; ++step) {
      const size_t near[] = {0, 1, 7, 8, 72};
      sizes.push_back(edge + near[step]);
      if (edge >= near[step]) sizes.push_back(edge - near[step]);
    }
  }
  for (size_t i = 0; i < sizes.size(); ++i) pair.b->send(11, i + 1, sizes[i]);
  assert_true(pair.a->wait([&](const Record& record) { return record.messages.size() == sizes.size(); }));
  const Record record = pair.a->record();
  for (size_t i = 0; i < sizes.size(); ++i) {
    assert_int_equal(record.messages[i].seq, i + 1);
    assert_int_equal(record.messages[i].bytes, sizes[i]);
    assert_true(record.messages[i].intact);
  }
  assert_no_violations(pair);
}

void a_payload_may_move_while_it_is_being_sent(void**) {
  Pair pair(transport_kind);
  constexpr size_t kBytes = 12 << 20;  // more than sockets buffer
  auto lenders = std::make_unique<std::vector<std::byte>>(pattern(1, kBytes));
  const auto payload = base::Payload::lent(*lenders);
  std::atomic<bool> go{false};
  pair.a->loop().post([&] {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  pair.b->send(11, 1, payload);
  pair.b->run([&] {
    payload->make_owned();
    lenders.reset();
  });
  go = true;
  assert_true(pair.a->wait([](const Record& record) { return record.messages.size() == 1; }));
  assert_true(pair.a->record().messages[0].intact);
  assert_no_violations(pair);
}

void a_sink_may_be_discarded_half_way(void**) {
  Pair pair(transport_kind);
  constexpr size_t kBytes = 12 << 20;
  std::shared_ptr<std::vector<std::byte>> memory;
  const auto sink_for = [&](uint64_t seq, size_t bytes) {
    if (seq == 2) return base::Sink::nowhere();
    memory = std::make_shared<std::vector<std::byte>>(bytes);
    const auto sink = base::Sink::into(*memory);
    pair.a->loop().post([&, sink] {
      sink->discard();
      memory.reset();  // a later write is a use after free
    });
    return sink;
  };
  pair.a->run([&] { pair.a->sink_for = sink_for; });
  for (uint64_t seq = 1; seq <= 2; ++seq) pair.b->send(11, seq, kBytes + seq);
  pair.b->send(11, 3, 10);
  assert_true(pair.a->wait([](const Record& record) { return record.messages.size() == 3; }));
  const Record record = pair.a->record();
  assert_int_equal(record.messages[0].bytes, kBytes + 1);
  assert_int_equal(record.messages[1].bytes, kBytes + 2);
  assert_true(record.messages[2].intact);
  assert_no_violations(pair);
}

void many_peers_are_kept_apart(void**) {
  constexpr Peer kPeers = 24;
  constexpr uint64_t kEach = 40;
  Node hub(transport_kind, options_of(1));
  const std::string address = hub.listen();
  std::vector<std::unique_ptr<Node>> peers;
  for (Peer i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<Node>(transport_kind, options_of(100 + i)));
    peers.back()->dial(address);
  }
  for (auto& peer : peers) assert_true(peer->wait([](const Record& record) { return record.connections_of(1) == 1; }));
  for (uint64_t seq = 1; seq <= kEach; ++seq) {
    for (auto& peer : peers) peer->send(1, seq, (seq * 997) % 30000);
  }
  assert_true(hub.wait([&](const Record& record) { return record.messages.size() == kPeers * kEach; }));
  std::map<Peer, uint64_t> last;
  for (const Heard& message : hub.record().messages) {
    assert_true(message.intact);
    assert_int_equal(message.seq, ++last[message.from]);
  }
  assert_no_violations(hub);
}

void close_sends_queued_messages_and_the_peer_notices_at_once(void**) {
  Pair pair(transport_kind);
  constexpr uint64_t kCount = 200;
  const Nanos before = pair.a->loop().now();
  pair.b->run([] {});
  for (uint64_t seq = 1; seq <= kCount; ++seq) pair.b->send(11, seq, 5000);
  pair.b->close(11);
  assert_true(pair.a->wait([](const Record& record) { return record.has_lost(22); }));
  const Record record = pair.a->record();
  assert_int_equal(record.messages.size(), kCount);
  assert_int_equal(record.lost[0].code, MV_EPEERLOST);
  assert_non_null(strstr(record.lost[0].text.c_str(), "closed the connection"));
  assert_true(record.lost[0].at - before < 10s);
  std::this_thread::sleep_for(100ms);
  assert_int_equal(pair.b->record().lost.size(), 0);  // the closing side gets no on_lost
  assert_no_violations(pair);
}

void a_closed_peer_is_never_heard_again(void**) {
  Pair pair(transport_kind);
  pair.a->close(22);
  assert_true(pair.b->wait([](const Record& record) { return record.has_lost(11); }));
  pair.b->dial(pair.address);
  assert_true(pair.b->wait([](const Record& record) { return record.dial_failed.size() == 1; }));
  assert_int_equal(pair.b->record().dial_failed[0].code, MV_EPEERLOST);
  pair.b->send(11, 1, 10);
  std::this_thread::sleep_for(100ms);
  assert_int_equal(pair.a->record().messages.size(), 0);
  assert_int_equal(pair.a->record().connected.size(), 1);
  assert_no_violations(pair);
}

void nothing_is_heard_of_a_peer_once_close_has_returned(void**) {
  Pair pair(transport_kind);
  for (uint64_t seq = 1; seq <= 50; ++seq) pair.b->send(11, seq, 100000);
  pair.a->close(22);
  const size_t heard = pair.a->record().messages.size();
  assert_true(pair.b->wait([](const Record& record) { return record.has_lost(11); }));
  assert_int_equal(pair.a->record().messages.size(), heard);
  assert_no_violations(pair);
}

void stop_says_goodbye_to_everybody(void**) {
  Pair pair(transport_kind);
  pair.b->send(11, 1, 3 << 20);
  assert_true(pair.b->stop());
  assert_true(pair.a->wait([](const Record& record) { return record.has_lost(22); }));
  assert_int_equal(pair.a->record().messages.size(), 1);
  assert_true(pair.a->record().messages[0].intact);
  assert_no_violations(pair);
}

void a_dial_without_a_listener_fails(void**) {
  Node node(transport_kind, options_of(5));
  std::string address;
  {
    Node other(transport_kind, options_of(6));
    address = other.listen();
  }
  node.dial(address);
  assert_true(node.wait([](const Record& record) { return record.dial_failed.size() == 1; }));
  const Ended failed = node.record().dial_failed[0];
  assert_int_equal(failed.code, MV_EUNREACHABLE);
  assert_string_equal(failed.address.c_str(), address.c_str());
  assert_non_null(strstr(failed.text.c_str(), address.c_str() + (transport_kind == Kind::kInproc ? 7 : 0)));
  assert_no_violations(node);
}

void a_failed_dial_may_be_repeated_at_once(void**) {
  Node node(transport_kind, options_of(5));
  std::string address;
  {
    Node other(transport_kind, options_of(6));
    address = other.listen();
  }
  int left = 20;
  node.after_failed_dial = [&](const std::string& failed) {
    if (--left > 0) node.transport().dial(failed);
  };
  node.dial(address);
  assert_true(node.wait([](const Record& record) { return record.dial_failed.size() == 20; }));
  assert_no_violations(node);
}

void an_address_is_listened_on_once(void**) {
  Node first(transport_kind, options_of(5)), second(transport_kind, options_of(6));
  const std::string address = first.listen();
  const auto taken = second.listen(address);
  assert_false(taken.ok());
  assert_int_equal(taken.status().code(), MV_EADDRINUSE);
  assert_non_null(strstr(taken.status().text().c_str(), address.c_str()));
}

void a_nonsense_address_is_refused(void**) {
  Node node(transport_kind, options_of(5));
  for (const char* address : {"", "nonsense", "inproc:", ":", "127.0.0.1:99999", "127.0.0.1:-1", "::1:80"}) {
    assert_false(node.listen(address).ok());
    assert_int_equal(node.listen(address).status().code(), MV_EINVAL);
    node.dial(address);
  }
  assert_true(node.wait([](const Record& record) { return record.dial_failed.size() == 7; }));
  assert_no_violations(node);
}

void two_dials_at_once_leave_one_connection(void**) {
  for (int round = 0; round < 40; ++round) {
    const Peer small = 2 * static_cast<Peer>(round) + 1000, large = small + 1;
    Node a(transport_kind, options_of(round % 2 ? small : large)), b(transport_kind, options_of(round % 2 ? large : small));
    const std::string address_a = a.listen(), address_b = b.listen();
    a.loop().post([&] { a.transport().dial(address_b); });
    b.loop().post([&] { b.transport().dial(address_a); });
    assert_true(a.wait([&](const Record& record) { return record.connections_of(b.self()) >= 1; }));
    assert_true(b.wait([&](const Record& record) { return record.connections_of(a.self()) >= 1; }));
    for (uint64_t seq = 1; seq <= 20; ++seq) {
      a.send(b.self(), seq, 1000);
      b.send(a.self(), seq, 1000);
    }
    for (Node* node : {&a, &b}) {
      assert_true(node->wait([](const Record& record) { return record.messages.size() >= 20; }));
      const Record record = node->record();
      assert_int_equal(record.messages.size(), 20);
      assert_int_equal(record.lost.size(), 0);
      assert_int_equal(record.dial_failed.size(), 0);
      assert_no_violations(*node);
    }
  }
}

void a_second_dial_to_a_peer_is_the_same_connection(void**) {
  Pair pair(transport_kind);
  pair.b->dial(pair.address);
  assert_true(pair.b->wait([](const Record& record) { return record.connections_of(11) == 2; }));
  pair.b->send(11, 1, 10);
  assert_true(pair.a->wait([](const Record& record) { return record.messages.size() == 1; }));
  assert_int_equal(pair.a->record().lost.size() + pair.b->record().lost.size(), 0);
  assert_no_violations(pair);
}

void sending_to_a_stranger_is_harmless(void**) {
  Node node(transport_kind, options_of(5));
  node.send(77, 1, 10);
  node.close(77);
  node.cut(77);
  assert_true(node.stop());
  assert_no_violations(node);
}

}  // namespace

int main(int argc, char** argv) {
  static const std::map<std::string, Kind> kKinds = {{"tcp", Kind::kTcp}, {"shm", Kind::kShm}, {"inproc", Kind::kInproc}, {"faulty", Kind::kFaulty}, {"tls", Kind::kTls}, {"ucx", Kind::kUcx}, {"mpi", Kind::kMpi}};
  const auto kind = kKinds.find(argc == 2 ? argv[1] : "");
  if (kind == kKinds.end()) return 2;
  transport_kind = kind->second;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_dial_connects_both_sides),
      cmocka_unit_test(messages_arrive_in_order_in_both_directions),
      cmocka_unit_test(payloads_of_every_size_arrive_whole),
      cmocka_unit_test(a_payload_may_move_while_it_is_being_sent),
      cmocka_unit_test(a_sink_may_be_discarded_half_way),
      cmocka_unit_test(many_peers_are_kept_apart),
      cmocka_unit_test(close_sends_queued_messages_and_the_peer_notices_at_once),
      cmocka_unit_test(a_closed_peer_is_never_heard_again),
      cmocka_unit_test(nothing_is_heard_of_a_peer_once_close_has_returned),
      cmocka_unit_test(stop_says_goodbye_to_everybody),
      cmocka_unit_test(a_dial_without_a_listener_fails),
      cmocka_unit_test(a_failed_dial_may_be_repeated_at_once),
      cmocka_unit_test(an_address_is_listened_on_once),
      cmocka_unit_test(a_nonsense_address_is_refused),
      cmocka_unit_test(two_dials_at_once_leave_one_connection),
      cmocka_unit_test(a_second_dial_to_a_peer_is_the_same_connection),
      cmocka_unit_test(sending_to_a_stranger_is_harmless),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
