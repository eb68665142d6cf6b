// transport/tcp with encryption: who is accepted, what a network between two nodes sees, and what it can do.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "certificates.hpp"
#include "node.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace transport = mv::transport;
using transport::TlsMode;

constexpr const char* kSecret = "a secret of these tests";

transport::TcpOptions options_of(Peer self, TlsMode mode, const std::string& secret = kSecret,
                                 const transport::TlsFiles& files = {}) {
  transport::TcpOptions options;
  options.self = self;
  options.secret = secret;
  options.tls = {mode, files};
  return options;
}

void assert_no_violations(Node& node) {
  for (const std::string& violation : node.record().violations) fail_test("broken promise: %s", violation.c_str());
}

std::string cipher_of(Node& node, Peer peer) {
  std::string cipher;
  node.run([&] { cipher = static_cast<transport::TcpTransport&>(node.transport()).cipher_of(peer); });
  return cipher;
}

struct Two {
  explicit Two(const transport::TcpOptions& listening, const transport::TcpOptions& dialing)
      : listener(Kind::kTcp, listening), dialer(Kind::kTcp, dialing) {
    address = listener.listen();
  }
  bool connect() {
    dialer.dial(address);
    dialer.wait([](const Record& record) { return record.connected.size() + record.dial_failed.size() > 0; });
    return !dialer.record().connected.empty();
  }
  std::string why() {
    const Record record = dialer.record();
    return record.dial_failed.empty() ? "" : record.dial_failed[0].text;
  }
  Node listener, dialer;
  std::string address;
};

void assert_talks(Two& two, bool encrypted) {
  if (!two.connect()) fail_test("%s", two.why().c_str());
  assert_true(two.listener.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  two.dialer.send(1, 1, 100'000);
  two.listener.send(2, 1, 100'000);
  for (Node* node : {&two.listener, &two.dialer}) {
    assert_true(node->wait([](const Record& record) { return record.messages.size() == 1; }));
    assert_true(node->record().messages[0].intact);
    assert_no_violations(*node);
  }
  assert_int_equal(cipher_of(two.dialer, 1).empty(), !encrypted);
  assert_string_equal(cipher_of(two.dialer, 1).c_str(), cipher_of(two.listener, 2).c_str());
}

void the_settings_of_both_sides_decide(void**) {
  const struct {
    TlsMode listener, dialer;
    bool talks, encrypted;
  } cases[] = {{TlsMode::kPsk, TlsMode::kPsk, true, true},   {TlsMode::kPsk, TlsMode::kAuto, true, true},
               {TlsMode::kAuto, TlsMode::kPsk, true, true},  {TlsMode::kAuto, TlsMode::kAuto, true, false},
               {TlsMode::kOff, TlsMode::kAuto, true, false}, {TlsMode::kAuto, TlsMode::kOff, true, false},
               {TlsMode::kOff, TlsMode::kOff, true, false},  {TlsMode::kOff, TlsMode::kPsk, false, false},
               {TlsMode::kPsk, TlsMode::kOff, false, false}};
  for (const auto& each : cases)
    for (const char* secret : {kSecret, ""}) {
      Two two(options_of(1, each.listener, secret), options_of(2, each.dialer, secret));
      if (each.talks) {
        assert_talks(two, each.encrypted);
        continue;
      }
      assert_true(!two.connect());
      for (const char* part : {"tls=psk", "tls=off", "POLYVERSO_TLS"}) assert_non_null(strstr(two.why().c_str(), part));
      assert_int_equal(two.dialer.record().dial_failed[0].code, MV_EAUTH);
      assert_int_equal(two.listener.record().connected.size(), 0);
    }
}

void another_secret_is_refused_with_a_hint(void**) {
  for (const auto& [listener, dialer] :
       {std::pair(TlsMode::kPsk, TlsMode::kPsk), std::pair(TlsMode::kAuto, TlsMode::kPsk)}) {
    Two two(options_of(1, listener, "right"), options_of(2, dialer, "wrong"));
    assert_true(!two.connect());
    assert_int_equal(two.dialer.record().dial_failed[0].code, MV_EAUTH);
    assert_non_null(strstr(two.why().c_str(), "POLYVERSO_SECRET"));
    assert_int_equal(two.listener.record().connected.size(), 0);
  }
}

void certificates_admit_with_and_without_a_secret(void**) {
  Authority authority;
  const auto files = authority.issue("node", "IP:127.0.0.1");
  for (const char* secret : {kSecret, ""}) {
    Two two(options_of(1, TlsMode::kMutual, secret, files), options_of(2, TlsMode::kMutual, secret, files));
    assert_talks(two, true);
  }
  Two other_secret(options_of(1, TlsMode::kMutual, "right", files), options_of(2, TlsMode::kMutual, "wrong", files));
  assert_true(!other_secret.connect());
  assert_non_null(strstr(other_secret.why().c_str(), "POLYVERSO_SECRET"));
  for (const TlsMode mode : {TlsMode::kPsk, TlsMode::kAuto, TlsMode::kOff})
    for (const bool dials : {true, false}) {
      const auto mutual = options_of(dials ? 2 : 1, TlsMode::kMutual, kSecret, files),
                 other = options_of(dials ? 1 : 2, mode);
      Two two(dials ? other : mutual, dials ? mutual : other);
      assert_true(!two.connect());
      for (const char* part : {"tls=mutual", "POLYVERSO_TLS"}) assert_non_null(strstr(two.why().c_str(), part));
    }
}

void wrong_certificates_are_refused_with_a_reason(void**) {
  Authority authority, other;
  const auto good = authority.issue("good", "IP:127.0.0.1"), old = authority.issue("old", "IP:127.0.0.1", {-7200, -60}),
             misnamed = authority.issue("misnamed", "DNS:elsewhere.example");
  auto foreign = other.issue("foreign", "IP:127.0.0.1");
  foreign.ca = authority.file();
  const struct {
    const transport::TlsFiles &listener, &dialer;
    const char* why;
  } cases[] = {{old, good, "expired"},
               {good, old, "expired"},
               {misnamed, good, "127.0.0.1"},
               {foreign, good, "tls_ca"},
               {good, foreign, "refused"}};
  for (const auto& each : cases) {
    Two two(options_of(1, TlsMode::kMutual, "", each.listener), options_of(2, TlsMode::kMutual, "", each.dialer));
    assert_true(!two.connect());
    assert_int_equal(two.dialer.record().dial_failed[0].code, MV_EAUTH);
    if (strstr(two.why().c_str(), each.why) == nullptr) fail_test("\"%s\" lacks \"%s\"", two.why().c_str(), each.why);
    assert_int_equal(two.listener.record().connected.size(), 0);
  }
}

/// A peer that listens itself must have a certificate for the address that it introduces itself by. One that only dials
/// needs no name.
void a_dialer_with_a_foreign_name_is_refused(void**) {
  Authority authority;
  const auto good = authority.issue("good", "IP:127.0.0.1"),
             misnamed = authority.issue("misnamed", "DNS:elsewhere.example");
  Two two(options_of(1, TlsMode::kMutual, "", good), options_of(2, TlsMode::kMutual, "", misnamed));
  two.dialer.listen();
  assert_true(!two.connect());
  assert_non_null(strstr(two.why().c_str(), "certificate"));
  assert_int_equal(two.listener.record().connected.size(), 0);
  Two quiet(options_of(1, TlsMode::kMutual, "", good), options_of(2, TlsMode::kMutual, "", misnamed));
  assert_talks(quiet, true);
}

void large_payloads_go_both_ways_at_once(void**) {
  Two two(options_of(1, TlsMode::kPsk), options_of(2, TlsMode::kPsk));
  if (!two.connect()) fail_test("%s", two.why().c_str());
  assert_true(two.listener.wait([](const Record& record) { return record.connections_of(2) == 1; }));
  constexpr uint64_t kCount = 12;
  for (uint64_t seq = 1; seq <= kCount; ++seq) {
    two.dialer.send(1, seq, (16 << 20) - seq);
    two.listener.send(2, seq, (8 << 20) + seq);
    two.dialer.send(1, seq + 100, seq);
  }
  assert_true(two.listener.wait([](const Record& record) { return record.messages.size() == 2 * kCount; }));
  assert_true(two.dialer.wait([](const Record& record) { return record.messages.size() == kCount; }));
  for (Node* node : {&two.listener, &two.dialer}) {
    for (const Heard& message : node->record().messages) assert_true(message.intact);
    assert_no_violations(*node);
  }
}

/// A listener that says it would encrypt, as an installation without the module does, and then can't.
void a_listener_that_cannot_encrypt_says_so(void**) {
  namespace wire = mv::wire;
  using State = wire::Handshake::State;
  const auto listening = transport::listen_on(transport::resolve({"127.0.0.1", "0"}, true, true).value()[0]);
  const std::string address =
      transport::to_text(transport::host_port(transport::local_endpoint(listening.value().get())));
  std::thread fake([&] {
    pollfd waits{listening.value().get(), POLLIN, 0};
    poll(&waits, 1, 20'000);
    const transport::Fd fd(accept4(listening.value().get(), nullptr, nullptr, SOCK_CLOEXEC));
    wire::Introduction self;
    self.incarnation = 1;
    self.has_secret = true;
    self.tls = wire::Tls::kIfAsked;
    wire::Handshake::Randomness randomness;
    randomness.nonce[0] = randomness.scalar[0] = std::byte{7};
    wire::Handshake handshake(wire::Handshake::Side::kListener, self, randomness);
    while (fd && handshake.state() != State::kFailed) {
      if (handshake.state() == State::kSecret) handshake.prove(kSecret);
      if (handshake.state() == State::kTls) handshake.refuse(wire::Refusal::kTls);
      ::send(fd.get(), handshake.output().data(), handshake.output().size(), MSG_NOSIGNAL);
      handshake.output().clear();
      std::byte bytes[256];
      const ssize_t got = recv(fd.get(), bytes, std::min(sizeof bytes, handshake.wants()), 0);
      if (got <= 0) break;
      handshake.feed(std::span(bytes).first(static_cast<size_t>(got)));
    }
    // Until the dialer has read it: a close with unread bytes would reset the connection.
    std::byte rest[4096];
    while (fd && recv(fd.get(), rest, sizeof rest, 0) > 0) {
    }
  });
  Node dialer(Kind::kTcp, options_of(2, TlsMode::kPsk));
  dialer.dial(address);
  const bool failed = dialer.wait([](const Record& record) { return record.dial_failed.size() == 1; });
  fake.join();
  assert_true(failed);
  const std::string why = dialer.record().dial_failed[0].text;
  if (strstr(why.c_str(), "can't encrypt") == nullptr) fail_test("%s", why.c_str());
}

// ------------------------------------------------------------ the network in between

/// A relay: it records the bytes of both directions, and may change or keep some.
class Relay {
 public:
  explicit Relay(const std::string& to) : to_(to) {
    const auto endpoint = transport::resolve({"127.0.0.1", "0"}, true, true).value()[0];
    listening_ = std::move(transport::listen_on(endpoint)).value();
    address_ = transport::to_text(transport::host_port(transport::local_endpoint(listening_.get())));
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ending_ = true;
    thread_.join();
  }
  const std::string& address() const { return address_; }
  std::vector<std::byte> seen(bool from_dialer) {
    const std::lock_guard lock(mutex_);
    return seen_[from_dialer ? 0 : 1];
  }
  size_t accepted() const { return accepted_; }
  /// Changes one bit of the next bytes from the dialer.
  void spoil() { spoils_ = true; }

 private:
  struct Line {
    transport::Fd dialer, listener;
  };
  void run() {
    std::deque<Line> lines;
    while (!ending_) {
      std::vector<pollfd> polled{{listening_.get(), POLLIN, 0}};
      for (const Line& line : lines) {
        polled.push_back({line.dialer.get(), POLLIN, 0});
        polled.push_back({line.listener.get(), POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), 20) <= 0) continue;
      for (size_t i = 0; i < lines.size(); ++i) {
        bool up = true;
        if (polled[1 + 2 * i].revents != 0) up = pass(lines[i].dialer.get(), lines[i].listener.get(), 0);
        if (up && polled[2 + 2 * i].revents != 0) up = pass(lines[i].listener.get(), lines[i].dialer.get(), 1);
        if (up) continue;
        lines.erase(lines.begin() + static_cast<ptrdiff_t>(i));
        break;
      }
      if ((polled[0].revents & POLLIN) == 0) continue;
      transport::Fd accepted(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      int failure = 0;
      transport::Fd on = transport::start_connect(
          transport::resolve(transport::parse_address(to_).value(), true, false).value()[0], &failure);
      pollfd ready{on.get(), POLLOUT, 0};
      poll(&ready, 1, 1000);
      ++accepted_;
      lines.push_back({std::move(accepted), std::move(on)});
    }
  }
  bool pass(int from, int to, size_t direction) {
    std::vector<std::byte> bytes(64 << 10);
    const ssize_t got = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    bytes.resize(static_cast<size_t>(got));
    if (direction == 0 && spoils_.exchange(false)) bytes[bytes.size() / 2] ^= std::byte{1};
    {
      const std::lock_guard lock(mutex_);
      seen_[direction].insert(seen_[direction].end(), bytes.begin(), bytes.end());
    }
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t some = ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (some < 0 && errno != EAGAIN) return false;
      if (some > 0) sent += static_cast<size_t>(some);
      pollfd ready{to, POLLOUT, 0};
      if (some < 0) poll(&ready, 1, 20);
    }
    return true;
  }

  const std::string to_;
  std::string address_;
  transport::Fd listening_;
  std::mutex mutex_;
  std::vector<std::byte> seen_[2];
  std::atomic<bool> ending_{false}, spoils_{false};
  std::atomic<size_t> accepted_{0};
  std::thread thread_;
};

bool contains(const std::vector<std::byte>& stream, const std::vector<std::byte>& part) {
  return std::search(stream.begin(), stream.end(), part.begin(), part.end()) != stream.end();
}

void a_relay_sees_payloads_only_without_encryption(void**) {
  for (const TlsMode mode : {TlsMode::kOff, TlsMode::kPsk}) {
    Node listener(Kind::kTcp, options_of(1, mode)), dialer(Kind::kTcp, options_of(2, mode));
    Relay relay(listener.listen());
    dialer.dial(relay.address());
    assert_true(dialer.wait([](const Record& record) { return record.connections_of(1) == 1; }));
    assert_true(listener.wait([](const Record& record) { return record.connections_of(2) == 1; }));
    for (const size_t bytes : {64ul, 3000ul, 200'000ul}) {
      dialer.send(1, bytes, bytes);
      listener.send(2, bytes, bytes);
    }
    for (Node* node : {&listener, &dialer})
      assert_true(node->wait([](const Record& record) { return record.messages.size() == 3; }));
    for (const bool from_dialer : {true, false})
      for (const size_t bytes : {64ul, 3000ul, 200'000ul}) {
        auto part = pattern(bytes, bytes);
        part.resize(24);
        assert_int_equal(contains(relay.seen(from_dialer), part), mode == TlsMode::kOff);
      }
  }
}

void a_changed_bit_breaks_the_connection_which_is_mended(void**) {
  auto listening = options_of(1, TlsMode::kPsk), dialing = options_of(2, TlsMode::kPsk);
  listening.reconnect_grace = dialing.reconnect_grace = kPatience;
  Node listener(Kind::kTcp, listening), dialer(Kind::kTcp, dialing);
  Relay relay(listener.listen());
  dialer.dial(relay.address());
  assert_true(dialer.wait([](const Record& record) { return record.connections_of(1) == 1; }));
  for (size_t round = 1; round <= 3; ++round) {
    relay.spoil();
    dialer.send(1, round, 100);
    assert_true(dialer.wait([&](const Record& record) { return record.connections_of(1) == round + 1; }));
    assert_true(listener.wait([&](const Record& record) { return record.connections_of(2) == round + 1; }));
  }
  dialer.send(1, 9, 100'000);
  assert_true(
      listener.wait([](const Record& record) { return !record.messages.empty() && record.messages.back().seq == 9; }));
  for (const Heard& message : listener.record().messages) assert_true(message.intact && message.seq == 9);
  assert_no_violations(listener);
}

void a_recorded_connection_cannot_be_replayed(void**) {
  Node listener(Kind::kTcp, options_of(1, TlsMode::kPsk));
  const std::string address = listener.listen();
  std::vector<std::byte> recorded;
  {
    Node dialer(Kind::kTcp, options_of(2, TlsMode::kPsk));
    Relay relay(address);
    dialer.dial(relay.address());
    assert_true(dialer.wait([](const Record& record) { return record.connections_of(1) == 1; }));
    dialer.send(1, 1, 5000);
    assert_true(listener.wait([](const Record& record) { return record.messages.size() == 1; }));
    recorded = relay.seen(true);
    assert_true(dialer.stop());
  }
  assert_true(listener.wait([](const Record& record) { return record.has_lost(2); }));
  int failure = 0;
  const transport::Fd again = transport::start_connect(
      transport::resolve(transport::parse_address(address).value(), true, false).value()[0], &failure);
  pollfd ready{again.get(), POLLOUT, 0};
  assert_int_equal(poll(&ready, 1, 20'000), 1);
  assert_int_equal(::send(again.get(), recorded.data(), recorded.size(), MSG_NOSIGNAL), recorded.size());
  // The listener answers and ends the connection.
  for (bool ended = false; !ended;) {
    ready.events = POLLIN;
    assert_int_equal(poll(&ready, 1, 20'000), 1);
    std::byte bytes[4096];
    const ssize_t got = recv(again.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    ended = got == 0 || (got < 0 && errno != EAGAIN);
  }
  assert_int_equal(listener.record().messages.size(), 1);
  assert_int_equal(listener.record().connected.size(), 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_settings_of_both_sides_decide),
      cmocka_unit_test(another_secret_is_refused_with_a_hint),
      cmocka_unit_test(certificates_admit_with_and_without_a_secret),
      cmocka_unit_test(wrong_certificates_are_refused_with_a_reason),
      cmocka_unit_test(a_dialer_with_a_foreign_name_is_refused),
      cmocka_unit_test(a_listener_that_cannot_encrypt_says_so),
      cmocka_unit_test(large_payloads_go_both_ways_at_once),
      cmocka_unit_test(a_relay_sees_payloads_only_without_encryption),
      cmocka_unit_test(a_changed_bit_breaks_the_connection_which_is_mended),
      cmocka_unit_test(a_recorded_connection_cannot_be_replayed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
