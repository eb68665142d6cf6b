// transport/fabric with UCX: which messages go by it, who may send them, and what happens when a line ends.

#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "cmocka.hpp"
#include "node.hpp"
#include "transport/fabric/fabric_transport.hpp"
#include "wire/frame.hpp"

namespace {

using namespace mv::test;
namespace base = mv::base;
namespace transport = mv::transport;
namespace wire = mv::wire;

transport::TcpOptions options_of(Peer self) {
  transport::TcpOptions options;
  options.self = self;
  return options;
}

bool carries(Node& node, Peer peer) {
  bool does = false;
  node.run([&] { does = static_cast<transport::FabricTransport&>(node.transport()).carries(peer); });
  return does;
}
std::string why_not(Node& node, Peer peer) {
  std::string why;
  node.run([&] { why = static_cast<transport::FabricTransport&>(node.transport()).why_not(peer); });
  return why;
}

void assert_no_violations(Node& node) {
  for (const std::string& violation : node.record().violations) fail_test("broken promise: %s", violation.c_str());
}
void assert_says(const std::string& text, const char* words) {
  if (text.find(words) == std::string::npos) fail_test("\"%s\" lacks \"%s\"", text.c_str(), words);
}

/// Sends one message from each to the other.
void assert_talks(Node& one, Node& other, uint64_t seq = 1, size_t bytes = 300'000) {
  one.send(other.self(), seq, bytes);
  other.send(one.self(), seq, bytes);
  for (Node* node : {&one, &other}) {
    assert_true(node->wait([&](const Record& record) { return !record.messages.empty() && record.messages.back().seq == seq; }));
    assert_true(node->record().messages.back().intact);
    assert_no_violations(*node);
  }
}

void messages_go_by_ucx(void**) {
  Pair pair(Kind::kUcx);
  assert_true(pair.connected);
  assert_true(carries(*pair.a, 22) && carries(*pair.b, 11));
  assert_string_equal(why_not(*pair.a, 22).c_str(), "");
  // A TCP connection that carried them would break here.
  for (uint64_t seq = 1; seq <= 30; ++seq) assert_talks(*pair.a, *pair.b, seq, seq * 50'000);
}

void large_heads_arrive(void**) {
  Pair pair(Kind::kUcx);
  uint64_t seq = 0;
  for (const size_t text : {3'000, 9'000, 70'000, 900'000}) {
    for (const size_t payload : {size_t{0}, size_t{100}, size_t{5'000}, size_t{1} << 20}) {
      ++seq;
      pair.a->expect_headers_up_to(text + 1000);
      pair.b->run([&] {
        wire::FrameBuilder builder;
        const auto why = builder.fbb().CreateString(std::string(text, 'x'));
        base::Frame frame = builder.finish(wire::Body::Abort, wire::CreateAbort(builder.fbb(), why), base::Payload::copy(pattern(seq, payload)));
        wire::stamp(frame, seq, 0);
        pair.b->transport().send(11, frame);
      });
      assert_true(pair.a->wait([&](const Record& record) { return record.messages.size() == seq; }));
      assert_int_equal(pair.a->record().messages.back().bytes, payload);
      assert_true(pair.a->record().messages.back().intact);
    }
  }
  assert_no_violations(*pair.a);
}

void without_ucx_on_one_side_tcp_carries(void**) {
  Node with(Kind::kUcx, options_of(11)), without(Kind::kTcp, options_of(22));
  without.dial(with.listen());
  assert_true(with.wait([](const Record& record) { return record.connections_of(22) == 1; }));
  assert_true(without.wait([](const Record& record) { return record.connections_of(11) == 1; }));
  assert_talks(with, without);
  assert_false(carries(with, 22));
  assert_says(why_not(with, 22), "transport=ucx is not set there");
}

void an_encrypted_connection_stays_with_tcp(void**) {
  transport::TcpOptions options;
  options.secret = "a secret of these tests";
  options.tls.mode = transport::TlsMode::kPsk;
  Pair pair(Kind::kUcx, options);
  assert_true(pair.connected);
  assert_talks(*pair.a, *pair.b);
  assert_false(carries(*pair.a, 22));
  assert_false(carries(*pair.b, 11));
  assert_says(why_not(*pair.a, 22), "UCX does not encrypt");
}

void a_wrong_secret_gets_no_line(void**) {
  transport::TcpOptions options;
  options.self = 11;
  options.secret = "one secret";
  Node node(Kind::kUcx, options);
  options.self = 22;
  options.secret = "another secret";
  Node other(Kind::kUcx, options);
  other.dial(node.listen());
  assert_true(other.wait([](const Record& record) { return record.dial_failed.size() == 1; }));
  assert_int_equal(other.record().dial_failed[0].code, MV_EAUTH);
  assert_int_equal(node.record().connected.size(), 0);
}

void a_broken_connection_gets_a_new_line(void**) {
  Pair pair(Kind::kUcx);
  for (size_t round = 2; round <= 4; ++round) {
    pair.a->cut(22);
    for (Node* node : {pair.a.get(), pair.b.get()})
      assert_true(node->wait([&](const Record& record) { return record.connected.size() >= round; }));
    assert_talks(*pair.a, *pair.b, round);
    assert_true(carries(*pair.a, 22) && carries(*pair.b, 11));
  }
  assert_int_equal(pair.a->record().lost.size() + pair.b->record().lost.size(), 0);
}

void the_end_of_a_peer_without_goodbye_is_noticed(void**) {
  Pair pair(Kind::kUcx);
  assert_talks(*pair.a, *pair.b);
  const Nanos before = pair.a->loop().now();
  pair.b.reset();
  assert_true(pair.a->wait([](const Record& record) { return record.has_lost(22); }));
  const Ended end = pair.a->record().lost[0];
  assert_int_equal(end.code, MV_EPEERLOST);
  assert_true(end.at - before < 5s);
  assert_no_violations(*pair.a);
}

/// A process that passes the hello, and then claims to have a fabric. It knows all that TCP carries.
class Impostor final : public base::LinkEvents {
 public:
  explicit Impostor(const transport::TcpOptions& options) : tcp_(loop_, options) {
    tcp_.attach(*this);
    auto fabric = transport::Fabric::open(transport::ucx_plugin().value(), true);
    fabric_ = std::move(fabric).value();
    assert_true(loop_.start().ok());
  }
  ~Impostor() override {
    loop_.stop();
    if (line_ != nullptr) fabric_->disconnect(line_);
  }
  void dial(const std::string& address) {
    loop_.post([this, address] { tcp_.dial(address); });
  }
  /// What it sends by the fabric once it knows the node's address.
  std::function<void(Impostor&, uint64_t line)> attack;

  void send(const transport::LineHeader& header, std::span<const std::byte> body) {
    std::vector<std::byte> bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    kept_.push_back({std::move(bytes), {body.begin(), body.end()}});
    assert_true(fabric_->send(line_, kept_.back().first, kept_.back().second, nullptr).ok());
  }

 private:
  void on_connected(Peer, const std::string&) override {}
  void on_dial_failed(const std::string&, const base::Status&) override {}
  void on_lost(Peer, const base::Status&) override {}
  void on_message(Peer from, const wire::Message& message, std::span<const std::byte>) override {
    const auto* said = message.body_as_FabricLine();
    if (said == nullptr || said->address()->size() == 0) return;
    const auto own = fabric_->address();
    wire::FrameBuilder builder;
    const auto bytes = builder.fbb().CreateVector(reinterpret_cast<const uint8_t*>(own.data()), own.size());
    tcp_.send(from, builder.finish(wire::Body::FabricLine, wire::CreateFabricLine(builder.fbb(), 4711, bytes)));
    line_ = fabric_->connect({reinterpret_cast<const std::byte*>(said->address()->data()), said->address()->size()}, nullptr).value();
    attack(*this, said->line());
    for (int turn = 0; turn < 2000; ++turn) {
      fabric_->progress();
      std::this_thread::sleep_for(100us);
    }
  }
  base::SinkRef on_header(Peer, const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_payload(Peer, const wire::Message&, base::Sink&) override {}

  transport::Loop loop_;
  std::unique_ptr<transport::Fabric> fabric_;
  transport::TcpTransport tcp_;
  mv_fabric_line line_ = nullptr;
  std::vector<std::pair<std::vector<std::byte>, std::vector<std::byte>>> kept_;
};

void a_message_without_the_token_is_not_heard(void**) {
  transport::TcpOptions options;
  options.self = 11;
  options.hello_timeout = 1s;
  Node node(Kind::kUcx, options);
  options.self = 22;
  options.capabilities = wire::kHasUcx;
  Impostor impostor(options);
  impostor.attack = [](Impostor& self, uint64_t line) {
    wire::FrameBuilder builder;
    base::Frame frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()));
    wire::stamp(frame, 1, 0);
    transport::LineToken guess{};
    for (uint64_t number : {line, uint64_t{1}}) {
      self.send({guess, number, 0, transport::LineKind::kOpen, 0}, {});
      self.send({guess, number, 1, transport::LineKind::kFrame, 0}, frame.head);
      self.send({guess, number, 2, transport::LineKind::kGoodbye, 0}, {});
    }
  };
  impostor.dial(node.listen());
  // Without a line that is proved, the pair uses TCP, which it has proved.
  assert_true(node.wait([](const Record& record) { return record.connections_of(22) == 1; }));
  assert_false(carries(node, 22));
  assert_says(why_not(node, 22), "no message of the other process came by UCX");
  assert_int_equal(node.record().messages.size(), 0);
  assert_int_equal(node.record().lost.size(), 0);
  assert_no_violations(node);
}

void a_plug_in_that_does_not_work_says_what_to_install(void**) {
  const auto missing = transport::load_fabric_plugin("/nowhere/libpolyverso-ucx.so");
  assert_int_equal(missing.status().code(), MV_ENOSYS);
  for (const char* words : {"/nowhere/libpolyverso-ucx.so", "libpolyverso-ucx", "libucx0", "transport=auto"}) assert_says(missing.status().text(), words);
  const auto other = transport::load_fabric_plugin("libm.so.6");
  assert_int_equal(other.status().code(), MV_ENOSYS);
  assert_says(other.status().text(), "is no plug-in for a fabric");
  const auto plugin = transport::ucx_plugin();
  assert_true(plugin.ok());
  assert_string_equal(plugin.value()->name, "ucx");
}

void another_version_is_not_connected(void**) {
  auto fabric = transport::Fabric::open(transport::ucx_plugin().value(), true);
  std::vector<std::byte> address(fabric.value()->address().begin(), fabric.value()->address().end());
  std::memcpy(address.data(), "UCX 9.9.9", 10);
  const auto line = fabric.value()->connect(address, nullptr);
  assert_int_equal(line.status().code(), MV_EVERSION);
  assert_says(line.status().text(), "the other one UCX 9.9.9");
  assert_int_equal(fabric.value()->connect(std::span(address).first(10), nullptr).status().code(), MV_EVERSION);
}

void a_fabric_describes_itself(void**) {
  auto fabric = transport::Fabric::open(transport::ucx_plugin().value(), true);
  assert_true(fabric.ok());
  const mv_fabric_about& about = fabric.value()->about();
  assert_int_equal(std::strncmp(about.version, "UCX 1.", 6), 0);
  assert_non_null(std::strstr(about.networks, "self/"));
  if (std::getenv("UCX_NET_DEVICES") == nullptr) assert_null(std::strstr(about.networks, "tcp/eth"));
  assert_true(about.most_header >= 1024);
}

void blocks_of_registered_memory_are_kept(void**) {
  auto fabric = transport::Fabric::open(transport::ucx_plugin().value(), true);
  std::set<std::byte*> seen;
  for (int turn = 0; turn < 10; ++turn) {
    const auto block = fabric.value()->block(1'000'000);
    assert_true(block.ok());
    std::memset(block.value()->data(), turn, 1'000'000);
    seen.insert(block.value()->data());
  }
  assert_int_equal(seen.size(), 1);
  assert_int_equal(fabric.value()->block(size_t{1} << 40).status().code(), MV_ENOMEM);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(messages_go_by_ucx),
      cmocka_unit_test(large_heads_arrive),
      cmocka_unit_test(without_ucx_on_one_side_tcp_carries),
      cmocka_unit_test(an_encrypted_connection_stays_with_tcp),
      cmocka_unit_test(a_wrong_secret_gets_no_line),
      cmocka_unit_test(a_broken_connection_gets_a_new_line),
      cmocka_unit_test(the_end_of_a_peer_without_goodbye_is_noticed),
      cmocka_unit_test(a_message_without_the_token_is_not_heard),
      cmocka_unit_test(a_plug_in_that_does_not_work_says_what_to_install),
      cmocka_unit_test(another_version_is_not_connected),
      cmocka_unit_test(a_fabric_describes_itself),
      cmocka_unit_test(blocks_of_registered_memory_are_kept),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
