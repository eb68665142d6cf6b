// wire/hello: the two sides against each other, and against whatever else may come.

#include "wire/hello.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "cmocka.hpp"

namespace {

using namespace mv::wire;
using State = Handshake::State;
using Side = Handshake::Side;

Introduction introduction(mv::base::Peer incarnation) {
  Introduction made;
  made.incarnation = incarnation;
  made.capabilities = incarnation * 3;
  made.address = "127.0.0.1:" + std::to_string(4000 + incarnation);
  return made;
}

Handshake::Nonce nonce(int seed) {
  Handshake::Nonce made;
  std::fill(made.begin(), made.end(), static_cast<std::byte>(seed));
  return made;
}

/// Two sides, and the wire between them.
struct Talk {
  explicit Talk(const Introduction& d = introduction(1), const Introduction& l = introduction(2),
                const std::string& d_secret = "s", const std::string& l_secret = "s")
      : dialer(Side::kDialer, d, d_secret, nonce(1)), listener(Side::kListener, l, l_secret, nonce(2)) {}

  /// Carries what each says to the other, `step` bytes at a time, until neither says anything. Both accept each other.
  void run(size_t step = 1 << 20) {
    while (!dialer.output().empty() || !listener.output().empty()) {
      carry(dialer, listener, step);
      carry(listener, dialer, step);
    }
  }
  static void carry(Handshake& from, Handshake& to, size_t step) {
    std::vector<std::byte> bytes;
    std::swap(bytes, from.output());
    for (size_t at = 0; at < bytes.size();) {
      const size_t taken = std::min({step, to.wants(), bytes.size() - at});
      if (taken == 0) break;
      to.feed(std::span(bytes).subspan(at, taken));
      at += taken;
      if (to.state() == State::kDeciding) to.accept();
    }
  }
  Handshake dialer, listener;
};

void two_sides_of_one_secret_come_to_know_each_other(void**) {
  for (size_t step : {size_t{1}, size_t{3}, size_t{16}, size_t{1000}}) {
    for (const char* secret :
         {"", "s", "a rather long secret, longer than a block of the hash: 0123456789012345678901234567890123456789"}) {
      Talk talk(introduction(1), introduction(2), secret, secret);
      talk.run(step);
      assert_int_equal(talk.dialer.state(), State::kDone);
      assert_int_equal(talk.listener.state(), State::kDone);
      assert_int_equal(talk.dialer.peer().incarnation, 2);
      assert_int_equal(talk.listener.peer().incarnation, 1);
      assert_int_equal(talk.listener.peer().capabilities, 3);
      assert_string_equal(talk.listener.peer().address.c_str(), "127.0.0.1:4001");
      assert_int_equal(talk.dialer.version(), kVersionMax);
      assert_int_equal(talk.dialer.wants() + talk.listener.wants(), 0);
    }
  }
}

void a_listener_is_silent_until_spoken_to(void**) {
  Talk talk;
  assert_true(talk.listener.output().empty());
  assert_false(talk.dialer.output().empty());
}

void a_dialer_proves_itself_first(void**) {
  Talk talk;
  Talk::carry(talk.dialer, talk.listener, 1000);
  const size_t hello = talk.listener.output().size();
  Talk::carry(talk.listener, talk.dialer, 1000);
  assert_int_equal(talk.dialer.output().size(), 48);
  assert_int_equal(hello, 136);
}

void different_secrets_are_refused_on_both_sides(void**) {
  for (const auto& [one, other] : {std::pair("right", "wrong"), std::pair("", "wrong"), std::pair("right", "")}) {
    Talk talk(introduction(1), introduction(2), one, other);
    talk.run();
    for (Handshake* side : {&talk.dialer, &talk.listener}) {
      assert_int_equal(side->state(), State::kFailed);
      assert_int_equal(side->refusal(), Refusal::kSecret);
      assert_int_equal(side->why("1.2.3.4:5").code(), MV_EAUTH);
      assert_non_null(strstr(side->why("1.2.3.4:5").text().c_str(), "1.2.3.4:5"));
      assert_non_null(strstr(side->why("1.2.3.4:5").text().c_str(), "POLYVERSO_SECRET"));
    }
    assert_true(talk.dialer.refused_by_peer());
  }
}

void versions_without_overlap_are_refused_on_both_sides(void**) {
  Introduction old = introduction(1), young = introduction(2);
  old.version_min = 1, old.version_max = 3;
  young.version_min = 4, young.version_max = 9;
  for (bool old_dials : {true, false}) {
    Talk talk(old_dials ? old : young, old_dials ? young : old);
    talk.run();
    for (Handshake* side : {&talk.dialer, &talk.listener}) {
      assert_int_equal(side->state(), State::kFailed);
      assert_int_equal(side->why("x").code(), MV_EVERSION);
      assert_non_null(strstr(side->why("x").text().c_str(), "4 to 9"));
      assert_non_null(strstr(side->why("x").text().c_str(), "1 to 3"));
    }
  }
}

void the_highest_common_version_is_spoken(void**) {
  Introduction one = introduction(1), other = introduction(2);
  one.version_min = 1, one.version_max = 5;
  other.version_min = 3, other.version_max = 9;
  Talk talk(one, other);
  talk.run();
  assert_int_equal(talk.dialer.version(), 5);
  assert_int_equal(talk.listener.version(), 5);
}

void a_node_that_reaches_itself_notices(void**) {
  Talk talk(introduction(7), introduction(7));
  talk.run();
  assert_int_equal(talk.dialer.state(), State::kFailed);
  assert_int_equal(talk.dialer.why("x").code(), MV_EUNREACHABLE);
}

void the_other_byte_order_is_told_so(void**) {
  Talk talk;
  auto& bytes = talk.dialer.output();
  std::reverse(bytes.begin(), bytes.begin() + 4);
  std::reverse(bytes.begin() + 4, bytes.begin() + 8);
  talk.listener.feed(std::span(bytes).first(16));
  assert_int_equal(talk.listener.state(), State::kFailed);
  assert_int_equal(talk.listener.why("x").code(), MV_EVERSION);
  bytes.clear();
  Talk::carry(talk.listener, talk.dialer, 1000);
  assert_int_equal(talk.dialer.refusal(), Refusal::kByteOrder);
  assert_true(talk.dialer.refused_by_peer());
}

void either_side_may_refuse(void**) {
  for (const Refusal why : {Refusal::kFenced, Refusal::kDuplicate, Refusal::kBusy, Refusal::kStranger}) {
    Talk talk;
    Talk::carry(talk.dialer, talk.listener, 1000);
    auto bytes = std::move(talk.listener.output());
    talk.listener.output().clear();
    talk.dialer.feed(bytes);
    assert_int_equal(talk.dialer.state(), State::kDeciding);
    talk.dialer.refuse(why);
    Talk::carry(talk.dialer, talk.listener, 1000);
    assert_int_equal(talk.listener.state(), State::kFailed);
    assert_int_equal(talk.listener.refusal(), why);
    assert_true(talk.listener.refused_by_peer());
    assert_false(talk.listener.why("x").ok());
  }
}

void a_proof_is_worth_nothing_elsewhere(void**) {
  // Replayed to another listener (another nonce), and reflected to its own sender.
  Talk first;
  Talk::carry(first.dialer, first.listener, 1000);
  Talk::carry(first.listener, first.dialer, 1000);
  const auto proof = first.dialer.output();

  Handshake listener(Side::kListener, introduction(2), "s", nonce(3)),
      dialer(Side::kDialer, introduction(1), "s", nonce(1));
  listener.feed(dialer.output());
  listener.feed(proof);
  assert_int_equal(listener.state(), State::kFailed);
  assert_int_equal(listener.refusal(), Refusal::kSecret);

  Talk mirror;
  Talk::carry(mirror.dialer, mirror.listener, 1000);
  Talk::carry(mirror.listener, mirror.dialer, 1000);
  const auto own = mirror.dialer.output();
  mirror.dialer.feed(own);
  assert_int_equal(mirror.dialer.state(), State::kFailed);
}

void a_changed_bit_anywhere_never_gets_through(void**) {
  // The hellos are covered by the proofs, except for the reserved words in front, which are compared.
  std::vector<std::byte> hello;
  {
    Talk talk;
    hello = talk.dialer.output();
  }
  for (size_t bit = 0; bit < hello.size() * 8; ++bit) {
    Talk talk;
    talk.dialer.output()[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    talk.run();
    assert_true(talk.listener.state() != State::kDone);
    assert_true(talk.dialer.state() != State::kDone);
  }
}

void garbage_is_no_hello(void**) {
  std::mt19937 random(7);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (int round = 0; round < 2000; ++round) {
    Handshake side(round % 2 ? Side::kListener : Side::kDialer, introduction(1), "s", nonce(1));
    std::vector<std::byte> bytes(200);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (round == 0) std::memcpy(bytes.data(), http.data(), http.size());
    side.feed(bytes);
    assert_int_equal(side.state(), State::kFailed);
    assert_int_equal(side.why("x").code(), MV_EPROTOCOL);
    side.feed(bytes);  // nothing is taken any more
    assert_int_equal(side.wants(), 0);
  }
}

void an_address_that_is_none_is_not_believed(void**) {
  for (const std::string& address : {std::string("a b:1"), std::string("x\n:1"), std::string(200, 'x')}) {
    Introduction odd = introduction(1);
    odd.address = address;
    Talk talk(odd);
    talk.run();
    assert_int_equal(talk.listener.state(), State::kDone);
    assert_string_equal(talk.listener.peer().address.c_str(), "");
  }
}

void a_goodbye_is_no_frame(void**) {
  const auto bytes = goodbye();
  assert_true(is_goodbye(bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto other = bytes;
    other[i] ^= std::byte{1};
    assert_false(is_goodbye(other));
  }
  assert_false(is_goodbye(std::span(bytes).first(8)));
}

}  // namespace

int main() {
  if (sodium_init() < 0) return 1;
  const CMUnitTest tests[] = {
      cmocka_unit_test(two_sides_of_one_secret_come_to_know_each_other),
      cmocka_unit_test(a_listener_is_silent_until_spoken_to),
      cmocka_unit_test(a_dialer_proves_itself_first),
      cmocka_unit_test(different_secrets_are_refused_on_both_sides),
      cmocka_unit_test(versions_without_overlap_are_refused_on_both_sides),
      cmocka_unit_test(the_highest_common_version_is_spoken),
      cmocka_unit_test(a_node_that_reaches_itself_notices),
      cmocka_unit_test(the_other_byte_order_is_told_so),
      cmocka_unit_test(either_side_may_refuse),
      cmocka_unit_test(a_proof_is_worth_nothing_elsewhere),
      cmocka_unit_test(a_changed_bit_anywhere_never_gets_through),
      cmocka_unit_test(garbage_is_no_hello),
      cmocka_unit_test(an_address_that_is_none_is_not_believed),
      cmocka_unit_test(a_goodbye_is_no_frame),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
