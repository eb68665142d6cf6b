// transport/tcp: which peers are accepted, which are not, and that neither disturbs other connections.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include "node.hpp"
#include "stranger.hpp"
#include "transport/token.hpp"
#include "transport/unix_socket.hpp"
#include "wire/frame.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace transport = mv::transport;
namespace wire = mv::wire;

transport::TcpOptions options_of(Peer self, const std::string& secret = "") {
  transport::TcpOptions options;
  options.self = self;
  options.secret = secret;
  return options;
}

void assert_no_violations(Node& node) {
  for (const std::string& violation : node.record().violations) fail_test("broken promise: %s", violation.c_str());
}

/// Asserts that `node`, listening at `address`, still accepts an honest peer.
void assert_still_welcoming(Node& node, const std::string& address, const std::string& secret = "") {
  static Peer next = 10'000;
  Node friendly(Kind::kTcp, options_of(++next, secret));
  friendly.dial(address);
  assert_true(friendly.wait([&](const Record& record) { return record.connections_of(node.self()) == 1; }));
  friendly.send(node.self(), 1, 10);
  assert_true(node.wait([&](const Record& record) { return record.messages_of(friendly.self()) == 1; }));
  assert_true(friendly.stop());
}

Ended failed_dial(Node& node, const std::string& address) {
  node.dial(address);
  assert_true(node.wait([](const Record& record) { return record.dial_failed.size() == 1; }));
  assert_int_equal(node.record().connected.size(), 0);
  return node.record().dial_failed[0];
}

void another_secret_is_refused_with_a_hint(void**) {
  Node node(Kind::kTcp, options_of(1, "right"));
  const std::string address = node.listen();
  for (const char* secret : {"wrong", ""}) {
    Node other(Kind::kTcp, options_of(2, secret));
    const Ended failed = failed_dial(other, address);
    assert_int_equal(failed.code, MV_EAUTH);
    assert_non_null(strstr(failed.text.c_str(), address.c_str()));
    assert_non_null(strstr(failed.text.c_str(), "POLYVERSO_SECRET"));
  }
  assert_still_welcoming(node, address, "right");
  assert_int_equal(node.record().connections_of(2), 0);
  assert_no_violations(node);
}

void another_version_is_refused_with_a_hint(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  transport::TcpOptions options = options_of(2);
  options.version_min = options.version_max = 77;
  Node other(Kind::kTcp, options);
  const Ended failed = failed_dial(other, address);
  assert_int_equal(failed.code, MV_EVERSION);
  assert_non_null(strstr(failed.text.c_str(), address.c_str()));
  assert_non_null(strstr(failed.text.c_str(), "77"));
  assert_still_welcoming(node, address);
}

void a_dial_to_oneself_fails(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  assert_int_equal(failed_dial(node, address).code, MV_EUNREACHABLE);
  assert_no_violations(node);
}

void a_dial_to_another_protocol_says_so(void**) {
  const auto endpoint = transport::resolve({"127.0.0.1", "0"}, true, true).value()[0];
  auto listening = transport::listen_on(endpoint);
  const std::string address = transport::to_text(transport::host_port(transport::local_endpoint(listening.value().get())));
  std::thread server([&] {
    int fd = -1;
    while (fd < 0) fd = accept(listening.value().get(), nullptr, nullptr);
    const char* answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    (void)!write(fd, answer, strlen(answer));
    close(fd);
  });
  Node node(Kind::kTcp, options_of(1));
  const Ended failed = failed_dial(node, address);
  server.join();
  assert_int_equal(failed.code, MV_EPROTOCOL);
  assert_non_null(strstr(failed.text.c_str(), address.c_str()));
}

void a_dial_to_a_silent_listener_ends(void**) {
  const auto endpoint = transport::resolve({"127.0.0.1", "0"}, true, true).value()[0];
  auto listening = transport::listen_on(endpoint);
  transport::TcpOptions options = options_of(1);
  options.hello_timeout = 200ms;
  Node node(Kind::kTcp, options);
  const Ended failed = failed_dial(node, transport::to_text(transport::host_port(transport::local_endpoint(listening.value().get()))));
  assert_int_equal(failed.code, MV_EUNREACHABLE);
  assert_non_null(strstr(failed.text.c_str(), "0.2 s"));
}

void names_are_looked_up(void**) {
  Node node(Kind::kTcp, options_of(1)), other(Kind::kTcp, options_of(2));
  const std::string address = node.listen();
  const std::string by_name = "localhost" + address.substr(address.rfind(':'));
  other.dial(by_name);
  assert_true(other.wait([](const Record& record) { return record.connections_of(1) == 1; }));
  assert_string_equal(other.record().connected[0].second.c_str(), by_name.c_str());
  Node third(Kind::kTcp, options_of(3));
  assert_int_equal(failed_dial(third, "no-such-host.invalid:1").code, MV_EUNREACHABLE);
}

void ipv6_works_where_there_is_any(void**) {
  Node node(Kind::kTcp, options_of(1)), other(Kind::kTcp, options_of(2));
  const auto bound = node.listen("[::1]:0");
  if (!bound.ok()) skip();
  assert_int_equal(bound.value().rfind("[::1]:", 0), 0);
  other.dial(bound.value());
  assert_true(other.wait([](const Record& record) { return record.connections_of(1) == 1; }));
}

void a_socket_that_listens_already_is_adopted(void**) {
  const auto endpoint = transport::resolve({"127.0.0.1", "0"}, true, true).value()[0];
  auto listening = transport::listen_on(endpoint);
  const std::string expected = transport::to_text(transport::host_port(transport::local_endpoint(listening.value().get())));
  Node node(Kind::kTcp, options_of(1));
  mv::base::Result<std::string> adopted = std::string();
  node.run([&] { adopted = node.transport().adopt(listening.value().release()); });
  assert_true(adopted.ok());
  assert_string_equal(adopted.value().c_str(), expected.c_str());
  assert_still_welcoming(node, expected);
  node.run([&] { adopted = node.transport().adopt(dup(STDERR_FILENO)); });
  assert_int_equal(adopted.status().code(), MV_EINVAL);
}

void listening_beyond_this_machine_needs_a_secret(void**) {
  const auto member = [](Peer self) {
    transport::TcpOptions options = options_of(self, "secret");
    options.tls.mode = transport::TlsMode::kOff;  // so that the test needs no module
    return options;
  };
  Node open(Kind::kTcp, options_of(1)), shut(Kind::kTcp, member(2));
  const auto refused = open.listen("0.0.0.0:0");
  assert_int_equal(refused.status().code(), MV_EINVAL);
  assert_non_null(strstr(refused.status().text().c_str(), "secret"));
  const auto bound = shut.listen("0.0.0.0:0");
  assert_true(bound.ok());
  // A peer that was dialed by a wildcard address is known by the address that its connection came from.
  Node other(Kind::kTcp, member(3));
  const auto others = other.listen("0.0.0.0:0").value();
  other.dial("127.0.0.1" + bound.value().substr(bound.value().rfind(':')));
  assert_true(shut.wait([](const Record& record) { return record.connections_of(3) == 1; }));
  const std::string expected = "127.0.0.1" + others.substr(others.rfind(':'));
  assert_string_equal(shut.record().connected[0].second.c_str(), expected.c_str());
}

void port_scans_are_turned_away_in_silence(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  for (int i = 0; i < 20; ++i) {
    Stranger silent(address);
    Stranger http(address);
    assert_true(http.send("GET / HTTP/1.0\r\n\r\n"));
    const auto answer = http.read_to_end();
    assert_true(answer.has_value());
    assert_int_equal(answer->size(), 0);
    Stranger zeros(address);
    zeros.send(std::string(70'000, '\0'));
    assert_true(zeros.read_to_end().has_value());
  }
  assert_still_welcoming(node, address);
  const Record record = node.record();
  assert_int_equal(record.connected.size(), 1);
  assert_int_equal(record.dial_failed.size(), 0);
  assert_no_violations(node);
}

void silence_is_not_waited_for_long(void**) {
  transport::TcpOptions options = options_of(1);
  options.hello_timeout = 200ms;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  Stranger silent(address), halting(address);
  halting.send("\x01");
  assert_true(silent.read_to_end().has_value());
  assert_true(halting.read_to_end().has_value());
  assert_still_welcoming(node, address);
}

void the_oldest_of_a_silent_crowd_makes_room(void**) {
  transport::TcpOptions options = options_of(1);
  options.max_strangers = 8;
  options.hello_timeout = 60s;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 8; ++i) crowd.push_back(std::make_unique<Stranger>(address));
  assert_false(crowd[0]->read_to_end(200).has_value());
  for (int i = 0; i < 8; ++i) {
    crowd.push_back(std::make_unique<Stranger>(address));
    assert_true(crowd[static_cast<size_t>(i)]->read_to_end().has_value());
  }
  assert_still_welcoming(node, address);  // at the cost of one more
  assert_true(crowd[8]->read_to_end().has_value());
  assert_false(crowd[15]->read_to_end(50).has_value());
}

uint64_t turned_away(Node& node) {
  uint64_t count = 0;
  node.run([&] { count = static_cast<transport::TcpTransport&>(node.transport()).turned_away(); });
  return count;
}

/// The first bytes of a dialer of this incarnation.
std::vector<std::byte> hello_of(Peer self, bool resumes) {
  wire::Introduction introduction;
  introduction.incarnation = self;
  introduction.resumes = resumes;
  return wire::Handshake(wire::Handshake::Side::kDialer, introduction, {}).output();
}

void resuming_connections_are_closed_last(void**) {
  transport::TcpOptions options = options_of(1);
  options.max_strangers = 3;
  options.hello_timeout = 60s;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  Node member(Kind::kTcp, options_of(2));
  member.dial(address);
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  Stranger known(address), unknown(address), silent(address);
  for (auto* each : {&known, &unknown}) assert_true(each->send(hello_of(each == &known ? 2 : 3, true)));
  for (auto* each : {&known, &unknown}) assert_int_equal(each->read(136).size(), 136);
  Stranger first(address);
  assert_true(silent.read_to_end().has_value());
  // A Hello alone gives an unknown peer no privilege: the connection that has made no progress for longest is closed.
  Stranger second(address);
  assert_true(unknown.read_to_end().has_value());
  Stranger third(address);
  assert_true(first.read_to_end().has_value());
  assert_true(third.send(hello_of(2, true)));  // of another connection of that member
  assert_int_equal(third.read(136).size(), 136);
  Stranger fourth(address), fifth(address);
  assert_true(second.read_to_end().has_value());
  assert_false(known.read_to_end(50).has_value());
  assert_int_equal(node.record().lost.size(), 0);
}

void a_renewed_crowd_does_not_keep_a_member_from_mending(void**) {
  transport::TcpOptions options = options_of(1);
  options.max_strangers = 16;
  options.reconnect_grace = 20s;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  options.self = 2;
  Node member(Kind::kTcp, options);
  member.dial(address);
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  std::atomic<bool> stop{false};
  std::thread people([&] {
    std::deque<Stranger> crowd;
    while (!stop) {
      crowd.emplace_back(address);
      if (crowd.size() % 3 == 0) crowd.back().send(hello_of(crowd.size(), crowd.size() % 2 == 0));
      if (crowd.size() > 100) crowd.pop_front();
    }
  });
  for (size_t time = 2; time < 12; ++time) {
    member.cut(1);
    assert_true(node.wait([&](const Record& record) { return record.connections_of(2) >= time; }));
    assert_true(member.wait([&](const Record& record) { return record.connections_of(1) >= time; }));
    member.send(1, time, 10);
    assert_true(node.wait([&](const Record& record) { return record.messages_of(2) == time - 1; }));
  }
  stop = true;
  people.join();
  assert_int_equal(node.record().lost.size() + member.record().lost.size(), 0);
  assert_no_violations(node);
}

void failed_proofs_are_rationed_but_not_for_members(void**) {
  transport::TcpOptions options = options_of(1, "right");
  options.failures = 3;
  options.failures_per_second = 0;
  options.reconnect_grace = 20s;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  transport::TcpOptions members = options_of(2, "right");
  members.reconnect_grace = 20s;
  Node member(Kind::kTcp, members);
  member.dial(address);
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  for (int i = 0; i < 5; ++i) assert_still_welcoming(node, address, "right");  // successes are not counted
  Peer self = 100;
  for (int i = 0; i < 3; ++i) {
    Node guesser(Kind::kTcp, options_of(++self, "wrong"));
    assert_int_equal(failed_dial(guesser, address).code, MV_EAUTH);
  }
  for (const char* secret : {"wrong", "right"}) {
    transport::TcpOptions hasty = options_of(++self, secret);
    hasty.hello_timeout = 300ms;
    Node late(Kind::kTcp, hasty);
    assert_int_equal(failed_dial(late, address).code, MV_EUNREACHABLE);
  }
  member.cut(1);
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 2; }));
  assert_int_equal(node.record().lost.size() + member.record().lost.size(), 5);  // those that were accepted and left
}

void proofs_in_a_members_name_are_rationed_too(void**) {
  // Its incarnation is not secret: it tells it to every caller.
  transport::TcpOptions options = options_of(1, "right");
  options.failures = 3;
  options.member_failures = 5;
  options.failures_per_second = options.member_failures_per_second = 0;
  options.reconnect_grace = 20s;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  options.self = 2;
  Node member(Kind::kTcp, options);
  member.dial(address);
  assert_true(node.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  const auto guess = [&](int patience_ms) {  // whether it was answered
    Stranger guesser(address);
    guesser.mend(patience_ms);
    const uint64_t before = turned_away(node);
    assert_false(guesser.introduce(2, "wrong"));
    return turned_away(node) > before;
  };
  for (int i = 0; i < 8; ++i) assert_true(guess(20'000));
  assert_false(guess(300));
  assert_int_equal(node.record().lost.size() + member.record().lost.size(), 0);
  member.send(1, 1, 10);
  assert_true(node.wait([](const Record& record) { return record.messages_of(2) == 1; }));
}

void rationed_proofs_are_made_later(void**) {
  transport::TcpOptions options = options_of(1, "right");
  options.failures = 1;
  options.failures_per_second = 5;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  for (Peer self = 100; self < 104; ++self) {
    Node guesser(Kind::kTcp, options_of(self, "wrong"));
    assert_int_equal(failed_dial(guesser, address).code, MV_EAUTH);
  }
  assert_still_welcoming(node, address, "right");
}

void a_token_is_worth_nothing_through_a_relay(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  Stranger relayed(address);
  assert_false(relayed.introduce_between(100, "127.0.0.1:1>" + address));
  Stranger direct(address);
  assert_true(direct.introduce(101));
  assert_true(node.wait([](const Record& record) { return record.connections_of(101) == 1; }));
  assert_int_equal(node.record().connected.size(), 1);
}

void another_user_gets_no_token(void**) {
  if (geteuid() != 0) {
    print_message("processes of two users are needed: this wants root\n");
    skip();
  }
  constexpr uid_t kNobody = 65534;
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  const auto as_nobody = [&](const std::function<bool()>& attempt) {
    const pid_t child = fork();
    if (child == 0) _exit(setuid(kNobody) == 0 && attempt() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0;
  };
  assert_true(as_nobody([&] {
    const auto token = transport::ask_for_token(1, address, 10s);
    return token.status().code() == MV_EAUTH && token.status().text().find("another user") != std::string::npos;
  }));
  // The same for a process that ignores errors and reads the answer.
  assert_true(as_nobody([&] {
    const auto desk = transport::connect_abstract("polyverso-token-0000000000000001-" + address);
    char byte = 0;
    pollfd readable{desk.value().get(), POLLIN, 0};
    return poll(&readable, 1, 10'000) == 1 && recv(desk.value().get(), &byte, 1, 0) == 0;
  }));
  assert_true(as_nobody([&] { return !Stranger(address).introduce(100); }));
  // A listener of another user is not believed either.
  const auto squatted = transport::listen_abstract("polyverso-token-0000000000000002-127.0.0.1:1");
  assert_true(as_nobody([&] { return transport::ask_for_token(2, "127.0.0.1:1", 10s).status().code() == MV_EAUTH; }));
  assert_int_equal(transport::ask_for_token(3, "127.0.0.1:1", 10s).status().code(), MV_EAUTH);  // there is none
  assert_still_welcoming(node, address);
}

void nonsense_after_the_hello_costs_its_own_connection(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  Node bystander(Kind::kTcp, options_of(2));
  bystander.dial(address);
  assert_true(bystander.wait([](const Record& record) { return record.connections_of(1) == 1; }));
  struct Prefix {
    uint32_t magic, header_bytes;
    uint64_t payload_bytes;
  };
  const Prefix oversized_header{wire::kFrameMagic, 0x7fff'ffff, 0},
      oversized_payload{wire::kFrameMagic, 64, uint64_t{1} << 40}, unsound{wire::kFrameMagic, 64, 0};
  const auto text = [](const Prefix& prefix) {
    return std::string(reinterpret_cast<const char*>(&prefix), sizeof prefix) + std::string(256, '\x55');
  };
  Peer self = 100;
  for (const std::string& bytes :
       {std::string(100, 'x'), text(oversized_header), text(oversized_payload), text(unsound)}) {
    Stranger stranger(address);
    assert_true(stranger.introduce(++self));
    assert_true(node.wait([&](const Record& record) { return record.connections_of(self) == 1; }));
    stranger.send(bytes);
    assert_true(stranger.read_to_end().has_value());
    assert_true(node.wait([&](const Record& record) { return record.has_lost(self); }));
    assert_int_equal(node.record().lost.back().code, MV_EPROTOCOL);
    Stranger again(address);
    assert_false(again.introduce(self));  // fenced
  }
  bystander.send(1, 1, 10);
  assert_true(node.wait([](const Record& record) { return record.messages_of(2) == 1; }));
  assert_int_equal(bystander.record().lost.size(), 0);
  assert_int_equal(node.record().messages.size(), 1);
  assert_no_violations(node);
}

void only_the_newest_lives_are_fenced(void**) {
  transport::TcpOptions options = options_of(1);
  options.most_fenced = 8;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  const Peer first = 100, last = 120;
  for (Peer self = first; self <= last; ++self) {
    Stranger stranger(address);
    assert_true(stranger.introduce(self));
    assert_true(node.wait([&](const Record& record) { return record.connections_of(self) == 1; }));
    stranger.send(std::string(100, 'x'));  // makes the transport lose it at once
    assert_true(node.wait([&](const Record& record) { return record.has_lost(self); }));
  }
  for (Peer self = last - 7; self <= last; ++self) {
    Stranger fenced(address);
    assert_false(fenced.introduce(self));
  }
  Stranger forgotten(address);
  assert_true(forgotten.introduce(last - 8));
}

transport::TcpOptions observer_options(Peer self) {
  transport::TcpOptions options = options_of(self);
  options.observes = true;
  return options;
}

void an_observer_is_announced_as_one_and_its_end_once(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  {
    Node observer(Kind::kTcp, observer_options(2));
    observer.dial(address);
    assert_true(observer.wait([](const Record& record) { return record.connections_of(1) == 1; }));
    assert_true(node.wait([](const Record& record) { return record.observers.size() == 1; }));
    assert_int_equal(node.record().observers[0], 2);
    node.send(2, 5, 100);
    assert_true(observer.wait([](const Record& record) { return record.messages_of(1) == 1; }));
  }
  assert_true(node.wait([](const Record& record) { return record.has_lost(2); }));
  assert_int_equal(node.record().connections_of(2), 0);
  assert_int_equal(node.record().lost.size(), 1);
  assert_still_welcoming(node, address);
}

void an_observer_that_does_not_read_gets_no_more(void**) {
  constexpr size_t kMessages = 64;
  const auto megabyte = mv::base::Payload::copy(std::vector<std::byte>(1 << 20));
  Node node(Kind::kTcp, options_of(1));
  Node observer(Kind::kTcp, observer_options(2));
  observer.dial(node.listen());
  assert_true(observer.wait([](const Record& record) { return record.connections_of(1) == 1; }));
  assert_true(node.wait([](const Record& record) { return record.observers.size() == 1; }));
  observer.run([&] {  // its loop is blocked meanwhile
    for (uint64_t seq = 1; seq <= kMessages; ++seq) node.send(2, seq, megabyte);
  });
  node.send(2, kMessages + 1, 10);
  assert_true(observer.wait([](const Record& record) { return record.messages_of(1) > 0; }));
  std::this_thread::sleep_for(200ms);
  assert_true(observer.record().messages_of(1) < kMessages);
  assert_int_equal(node.record().lost.size(), 0);
}

void a_frame_before_the_hello_is_never_parsed(void**) {
  Node node(Kind::kTcp, options_of(1));
  const std::string address = node.listen();
  wire::FrameBuilder builder;
  const auto frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()));
  Stranger rude(address);
  rude.send(frame.head);
  assert_true(rude.read_to_end().has_value());
  assert_int_equal(node.record().messages.size(), 0);
  assert_still_welcoming(node, address);
}

/// Listens, and stops in the middle of the hello with the first that connects.
class HalfListener {
 public:
  explicit HalfListener(Peer self) : self_(self), socket_(std::move(transport::listen_on(transport::resolve({"127.0.0.1", "0"}, true, true).value()[0])).value()) {}

  std::string address() const { return transport::to_text(transport::host_port(transport::local_endpoint(socket_.get()))); }
  /// Returns when the dialer has got this side's Hello, and has gone on.
  void meet() {
    pollfd waiting{socket_.get(), POLLIN, 0};
    assert_int_equal(poll(&waiting, 1, 20'000), 1);
    met_ = transport::Fd(accept(socket_.get(), nullptr, nullptr));
    assert_int_equal(fcntl(met_.get(), F_SETFL, 0), 0);
    wire::Introduction introduction;
    introduction.incarnation = self_;
    introduction.has_secret = true;
    wire::Handshake handshake(wire::Handshake::Side::kListener, introduction, {});
    std::array<std::byte, 256> bytes;
    while (handshake.output().empty()) {
      const ssize_t got = recv(met_.get(), bytes.data(), std::min(bytes.size(), handshake.wants()), 0);
      assert_true(got > 0);
      handshake.feed(std::span(bytes).first(static_cast<size_t>(got)));
    }
    const auto size = static_cast<ssize_t>(handshake.output().size());
    assert_int_equal(send(met_.get(), handshake.output().data(), handshake.output().size(), MSG_NOSIGNAL), size);
    assert_true(recv(met_.get(), bytes.data(), 1, 0) == 1);
  }

 private:
  const Peer self_;
  transport::Fd socket_, met_;
};

/// The peers' own dials wait for the end of the node's dials to them, and all of these end at the same tick.
void connections_that_wait_for_a_slow_dial_outlive_it(void**) {
  constexpr Peer kFirst = 100, kPeers = 8;
  transport::TcpOptions options = options_of(1, "secret");
  options.hello_timeout = 400ms;
  options.retry = 600ms;
  Node node(Kind::kTcp, options);
  const std::string address = node.listen();
  std::deque<HalfListener> slow;
  for (Peer peer = kFirst; peer < kFirst + kPeers; ++peer) node.dial(slow.emplace_back(peer).address());
  for (HalfListener& listener : slow) listener.meet();
  std::deque<Stranger> peers;
  std::deque<std::thread> hellos;
  std::array<std::atomic<bool>, kPeers> connected{};
  for (Peer i = 0; i < kPeers; ++i) {
    Stranger& peer = peers.emplace_back(address);
    hellos.emplace_back([&, i] { connected.at(i) = peer.introduce(kFirst + i, "secret"); });
  }
  for (std::thread& hello : hellos) hello.join();
  for (Peer i = 0; i < kPeers; ++i) {
    if (!connected.at(i)) continue;  // it was late itself
    assert_true(node.wait([&](const Record& record) { return record.connections_of(kFirst + i) == 1; }));
    node.send(kFirst + i, 1, 10);
    assert_int_equal(peers.at(i).read(16).size(), 16);
  }
  assert_true(node.stop());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(another_secret_is_refused_with_a_hint),
      cmocka_unit_test(another_version_is_refused_with_a_hint),
      cmocka_unit_test(a_dial_to_oneself_fails),
      cmocka_unit_test(a_dial_to_another_protocol_says_so),
      cmocka_unit_test(a_dial_to_a_silent_listener_ends),
      cmocka_unit_test(names_are_looked_up),
      cmocka_unit_test(ipv6_works_where_there_is_any),
      cmocka_unit_test(a_socket_that_listens_already_is_adopted),
      cmocka_unit_test(listening_beyond_this_machine_needs_a_secret),
      cmocka_unit_test(port_scans_are_turned_away_in_silence),
      cmocka_unit_test(silence_is_not_waited_for_long),
      cmocka_unit_test(the_oldest_of_a_silent_crowd_makes_room),
      cmocka_unit_test(resuming_connections_are_closed_last),
      cmocka_unit_test(a_renewed_crowd_does_not_keep_a_member_from_mending),
      cmocka_unit_test(failed_proofs_are_rationed_but_not_for_members),
      cmocka_unit_test(proofs_in_a_members_name_are_rationed_too),
      cmocka_unit_test(rationed_proofs_are_made_later),
      cmocka_unit_test(a_token_is_worth_nothing_through_a_relay),
      cmocka_unit_test(another_user_gets_no_token),
      cmocka_unit_test(nonsense_after_the_hello_costs_its_own_connection),
      cmocka_unit_test(a_frame_before_the_hello_is_never_parsed),
      cmocka_unit_test(connections_that_wait_for_a_slow_dial_outlive_it),
      cmocka_unit_test(only_the_newest_lives_are_fenced),
      cmocka_unit_test(an_observer_is_announced_as_one_and_its_end_once),
      cmocka_unit_test(an_observer_that_does_not_read_gets_no_more),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
