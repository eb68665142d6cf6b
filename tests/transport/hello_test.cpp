// wire/handshake: the two sides against each other, and against arbitrary input.

#include "wire/handshake.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "cmocka.hpp"

namespace {

using namespace mv::wire;
using State = Handshake::State;
using Side = Handshake::Side;

Introduction introduction(mv::base::Peer incarnation) {
  Introduction made;
  made.incarnation = incarnation;
  made.capabilities = incarnation * 3;
  made.has_secret = true;
  made.address = "127.0.0.1:" + std::to_string(4000 + incarnation);
  return made;
}

Handshake::Randomness randomness(int seed) {
  Handshake::Randomness made;
  std::fill(made.nonce.begin(), made.nonce.end(), static_cast<std::byte>(seed));
  std::fill(made.scalar.begin(), made.scalar.end(), static_cast<std::byte>(seed + 100));
  return made;
}

/// One side of a handshake, and its reaction to events.
struct Party {
  Party(Side side, const Introduction& self, std::string secret, int seed, std::string channel = "")
      : handshake(side, self, randomness(seed)), secret(std::move(secret)), channel(std::move(channel)) {}
  /// Feeds as many bytes as it takes, `step` at a time. Accepts every peer that proves itself.
  void hear(std::span<const std::byte> bytes, size_t step = 1 << 20) {
    for (;;) {
      if (handshake.state() == State::kSecret) handshake.prove(secret, channel);
      if (handshake.state() == State::kDeciding) handshake.accept();
      const size_t taken = std::min({step, handshake.wants(), bytes.size()});
      if (taken == 0) return;
      handshake.feed(bytes.first(taken));
      bytes = bytes.subspan(taken);
    }
  }
  std::vector<std::byte> say() { return std::exchange(handshake.output(), {}); }

  Handshake handshake;
  const std::string secret, channel;
};

/// A man in the middle: may change the bytes of one side before the other receives them.
using Between = std::function<void(Side from, size_t turn, std::vector<std::byte>& said)>;

/// Two sides and the wire between them.
struct Talk {
  explicit Talk(const Introduction& d = introduction(1), const Introduction& l = introduction(2),
                const std::string& d_secret = "s", const std::string& l_secret = "s", int seed = 1)
      : Talk(Party(Side::kDialer, d, d_secret, seed), Party(Side::kListener, l, l_secret, seed + 1)) {}
  Talk(Party d, Party l) : dialing(std::move(d)), listening(std::move(l)) {}

  /// Carries bytes both ways until neither side has any left. Both accept each other.
  void run(size_t step = 1 << 20, const Between& between = nullptr) {
    for (size_t turn = 0; !dialer.output().empty() || !listener.output().empty(); ++turn) {
      Party& from = dialer.output().empty() ? listening : dialing;
      auto said = from.say();
      if (between) between(from.handshake.side(), turn, said);
      (&from == &dialing ? listening : dialing).hear(said, step);
    }
  }
  static void carry(Party& from, Party& to) { to.hear(from.say()); }
  bool nobody_believes() const { return dialer.state() != State::kDone && listener.state() != State::kDone; }

  Party dialing, listening;
  Handshake &dialer = dialing.handshake, &listener = listening.handshake;
};

void two_sides_of_one_secret_come_to_know_each_other(void**) {
  for (size_t step : {size_t{1}, size_t{3}, size_t{16}, size_t{1000}}) {
    for (const char* secret :
         {"", "s", "a rather long secret, longer than a block of the hash: 0123456789012345678901234567890123456789"
                   "0123456789012345678901234567890123456789012345678901234567890123456789"}) {
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
      assert_true(talk.dialer.key() == talk.listener.key());
    }
  }
}

void the_key_is_of_this_connection_alone(void**) {
  std::set<Handshake::Key> keys{Handshake::Key{}};
  const auto note = [&](Talk talk) {
    talk.run();
    assert_int_equal(talk.listener.state(), State::kDone);
    assert_true(talk.dialer.key() == talk.listener.key());
    assert_true(keys.insert(talk.dialer.key()).second);
  };
  for (int seed = 1; seed < 20; seed += 2) note(Talk(introduction(1), introduction(2), "s", "s", seed));
  note(Talk(introduction(1), introduction(2), "t", "t"));
  note(Talk(introduction(1), introduction(3)));
  note(Talk({Side::kDialer, introduction(1), "s", 1, "here>there"}, {Side::kListener, introduction(2), "s", 2, "here>there"}));
}

void a_listener_is_silent_until_spoken_to(void**) {
  Talk talk;
  assert_true(talk.listener.output().empty());
  assert_false(talk.dialer.output().empty());
}

void a_dialer_proves_itself_first(void**) {
  // Checked too: neither side sends anything that depends on its secret before the other side has committed itself to one.
  Talk talk;
  std::vector<std::pair<Side, size_t>> said;
  talk.run(1 << 20, [&](Side from, size_t, const std::vector<std::byte>& bytes) { said.emplace_back(from, bytes.size()); });
  const std::vector<std::pair<Side, size_t>> expected = {{Side::kDialer, 136}, {Side::kListener, 136}, {Side::kDialer, 48},
                                                         {Side::kListener, 48}, {Side::kDialer, 48},   {Side::kListener, 48}};
  assert_true(said == expected);
}

void different_secrets_are_refused_on_both_sides(void**) {
  for (const auto& [one, other] : {std::pair("right", "wrong"), std::pair("wrong", "right"), std::pair("right", "right ")}) {
    Talk talk(introduction(1), introduction(2), one, other);
    talk.run();
    for (Handshake* side : {&talk.dialer, &talk.listener}) {
      assert_int_equal(side->state(), State::kFailed);
      assert_int_equal(side->refusal(), Refusal::kSecret);
      assert_int_equal(side->why("1.2.3.4:5").code(), MV_EAUTH);
      assert_non_null(strstr(side->why("1.2.3.4:5").text().c_str(), "1.2.3.4:5 has a different secret"));
      assert_non_null(strstr(side->why("1.2.3.4:5").text().c_str(), "POLYVERSO_SECRET"));
    }
    assert_true(talk.dialer.refused_by_peer());
  }
}

void a_secret_on_one_side_only_is_reported_on_both(void**) {
  for (const bool dialer_has : {true, false}) {
    Introduction d = introduction(1), l = introduction(2);
    d.has_secret = dialer_has;
    l.has_secret = !dialer_has;
    Talk talk(d, l, "same", "same");
    talk.run();
    const Handshake &with = dialer_has ? talk.dialer : talk.listener, &without = dialer_has ? talk.listener : talk.dialer;
    assert_int_equal(with.refusal(), Refusal::kSecret);
    assert_non_null(strstr(with.why("x").text().c_str(), "x has no secret and this process has one: set POLYVERSO_SECRET"));
    assert_int_equal(without.refusal(), Refusal::kSecret);
    assert_non_null(strstr(without.why("x").text().c_str(), "x has a secret and this process has none: set POLYVERSO_SECRET"));
    assert_int_equal(without.why("x").code(), MV_EAUTH);
  }
}

void without_secrets_the_message_is_about_users(void**) {
  Introduction d = introduction(1), l = introduction(2);
  d.has_secret = l.has_secret = false;
  Talk talk(d, l, "one token", "another token");
  talk.run();
  for (Handshake* side : {&talk.dialer, &talk.listener}) {
    assert_int_equal(side->why("x").code(), MV_EAUTH);
    assert_non_null(strstr(side->why("x").text().c_str(), "one user"));
    assert_non_null(strstr(side->why("x").text().c_str(), "POLYVERSO_SECRET"));
  }
}

void a_relay_changes_the_channel(void**) {
  Talk talk({Side::kDialer, introduction(1), "s", 1, "a>b"}, {Side::kListener, introduction(2), "s", 2, "c>d"});
  talk.run();
  assert_true(talk.nobody_believes());
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

void the_other_byte_order_is_reported(void**) {
  Talk talk;
  auto& bytes = talk.dialer.output();
  std::reverse(bytes.begin(), bytes.begin() + 4);
  std::reverse(bytes.begin() + 4, bytes.begin() + 8);
  talk.listener.feed(std::span(bytes).first(16));
  assert_int_equal(talk.listener.state(), State::kFailed);
  assert_int_equal(talk.listener.why("x").code(), MV_EVERSION);
  bytes.clear();
  Talk::carry(talk.listening, talk.dialing);
  assert_int_equal(talk.dialer.refusal(), Refusal::kByteOrder);
  assert_true(talk.dialer.refused_by_peer());
}

void either_side_may_refuse(void**) {
  for (const Refusal why : {Refusal::kFenced, Refusal::kDuplicate, Refusal::kBusy, Refusal::kStranger, Refusal::kUser}) {
    Talk talk;
    Talk::carry(talk.dialing, talk.listening);
    talk.dialer.feed(talk.listening.say());
    assert_int_equal(talk.dialer.state(), State::kSecret);
    talk.dialer.refuse(why);
    Talk::carry(talk.dialing, talk.listening);
    assert_int_equal(talk.listener.state(), State::kFailed);
    assert_int_equal(talk.listener.refusal(), why);
    assert_true(talk.listener.refused_by_peer());
    assert_false(talk.listener.why("x").ok());

    Talk late;
    for (int i = 0; i < 2; ++i) {
      Talk::carry(late.dialing, late.listening);
      Talk::carry(late.listening, late.dialing);
    }
    late.listener.feed(late.dialing.say());
    assert_int_equal(late.listener.state(), State::kDeciding);
    late.listener.refuse(why);
    Talk::carry(late.listening, late.dialing);
    assert_int_equal(late.dialer.refusal(), why);
    assert_true(late.dialer.refused_by_peer());
  }
}

/// All bytes that the two sides of a good handshake send, in turns.
std::vector<std::vector<std::byte>> recorded(int seed = 1) {
  std::vector<std::vector<std::byte>> records;
  Talk talk(introduction(1), introduction(2), "s", "s", seed);
  talk.run(1 << 20, [&](Side, size_t, const std::vector<std::byte>& said) { records.push_back(said); });
  return records;
}

void no_record_is_valid_in_another_hello(void**) {
  // Replaces each record of one handshake by each record of another one, of an earlier one of the same sides, and of the same one: replay
  // and reflection.
  const auto old = recorded(50), own = recorded();
  for (size_t turn = 0; turn < own.size(); ++turn) {
    for (const auto* records : {&old, &own}) {
      for (const auto& record : *records) {
        if (record == own[turn]) continue;
        Talk talk;
        talk.run(1 << 20, [&](Side, size_t at, std::vector<std::byte>& said) {
          if (at == turn) said = record;
        });
        // A listener is done once it has sent its consent. The dialer detects whether it arrived.
        assert_true(talk.dialer.state() != State::kDone);
        if (turn + 1 < own.size()) assert_true(talk.listener.state() != State::kDone);
      }
    }
  }
}

void a_whole_conversation_can_not_be_replayed(void**) {
  const auto old = recorded(50);
  Party listening(Side::kListener, introduction(2), "s", 2), dialing(Side::kDialer, introduction(1), "s", 1);
  for (const size_t turn : {0, 2, 4}) listening.hear(old[turn]);
  for (const size_t turn : {1, 3, 5}) dialing.hear(old[turn]);
  assert_int_equal(listening.handshake.refusal(), Refusal::kSecret);
  assert_int_equal(dialing.handshake.refusal(), Refusal::kSecret);
}

void a_mirror_is_not_believed(void**) {
  // Its own Hello comes back, changed to look like another process's; everything else comes back unchanged.
  Party dialing(Side::kDialer, introduction(1), "s", 1);
  auto hello = dialing.say();
  hello[24] ^= std::byte{0x40};  // the incarnation
  dialing.hear(hello);
  dialing.hear(dialing.say());  // its Share
  assert_int_equal(dialing.handshake.state(), State::kFailed);
  assert_int_equal(dialing.handshake.refusal(), Refusal::kSecret);
}

void a_changed_bit_anywhere_never_gets_through(void**) {
  const auto records = recorded();
  for (size_t turn = 0; turn < records.size(); ++turn) {
    for (size_t bit = 0; bit < records[turn].size() * 8; ++bit) {
      // The detail field of a head matters only in refusals. In other messages nothing reads it, but a Hello's is part of the proof.
      if (turn > 1 && bit / 8 >= 12 && bit / 8 < 16) continue;
      Talk talk;
      talk.run(1 << 20, [&](Side, size_t at, std::vector<std::byte>& said) {
        if (at == turn) said[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      });
      assert_true(talk.dialer.state() != State::kDone);
      if (turn + 1 < records.size()) assert_true(talk.listener.state() != State::kDone);
    }
  }
}

void a_record_that_is_cut_short_is_waited_for(void**) {
  const auto records = recorded();
  for (size_t turn = 0; turn < records.size(); ++turn) {
    for (size_t length = 0; length < records[turn].size(); ++length) {
      Talk talk;
      talk.run(1 << 20, [&](Side, size_t at, std::vector<std::byte>& said) {
        if (at == turn) said.resize(length);
      });
      const Handshake& waiting = turn % 2 == 0 ? talk.listener : talk.dialer;
      assert_true(waiting.state() == State::kHello || waiting.state() == State::kShare || waiting.state() == State::kProof);
      assert_int_equal(waiting.wants(), length < 16 ? 16 - length : records[turn].size() - length);
    }
  }
}

void a_record_out_of_its_turn_ends_it(void**) {
  // Each record at a point where another one is due. A Refuse is always allowed.
  const auto records = recorded();
  for (size_t turn = 0; turn < records.size(); ++turn) {
    for (const size_t other : {0, 2, 4}) {
      if (other / 2 == turn / 2) continue;
      Talk talk;
      talk.run(1 << 20, [&](Side, size_t at, std::vector<std::byte>& said) {
        if (at == turn) said = records[other];
      });
      const Handshake& surprised = turn % 2 == 0 ? talk.listener : talk.dialer;
      assert_int_equal(surprised.state(), State::kFailed);
    }
  }
}

void shares_that_are_no_points_are_refused(void**) {
  using Word = std::array<uint8_t, 32>;
  Word minus_one, not_reduced, prime;
  prime.fill(0xff);
  prime[0] = 0xed;
  prime[31] = 0x7f;
  minus_one = prime;
  --minus_one[0];
  not_reduced.fill(0xff);
  Word high_bit{};  // the neutral element, with the ignored bit set
  high_bit[31] = 0x80;
  Word negative{};
  negative[0] = 1;
  // The torsion points of the curve below, in the encodings that X25519 and Ed25519 would accept.
  const Word words[] = {Word{}, negative, minus_one, prime, not_reduced, high_bit,
                        {0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
                         0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
                        {0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b,
                         0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57}};
  for (const size_t turn : {2, 3}) {
    for (const Word& word : words) {
      Talk talk;
      talk.run(1 << 20, [&](Side, size_t at, std::vector<std::byte>& said) {
        if (at == turn) std::memcpy(said.data() + 16, word.data(), word.size());
      });
      const Handshake& deceived = turn == 2 ? talk.listener : talk.dialer;
      assert_int_equal(deceived.state(), State::kFailed);
      assert_int_equal(deceived.refusal(), Refusal::kSecret);
      assert_true(talk.nobody_believes());
    }
  }
}

void a_role_can_not_be_changed(void**) {
  // Two dialers, or two listeners, with somebody who relays their messages.
  for (const Side side : {Side::kDialer, Side::kListener}) {
    Party one(side, introduction(1), "s", 1), other(side, introduction(2), "s", 2);
    auto first = recorded()[0];
    if (side == Side::kListener) one.hear(first);
    for (int i = 0; i < 6; ++i) {
      other.hear(one.say());
      one.hear(other.say());
    }
    assert_true(one.handshake.state() != State::kDone && other.handshake.state() != State::kDone);
  }
}

void an_older_version_can_not_be_forced(void**) {
  Introduction both = introduction(1), other = introduction(2);
  both.version_min = other.version_min = 1;
  for (const size_t turn : {0, 1}) {
    Talk talk(both, other);
    talk.run(1 << 20, [&](Side, size_t at, std::vector<std::byte>& said) {
      if (at == turn) said[18] = std::byte{1};  // version_max
    });
    assert_true(talk.nobody_believes());
  }
}

/// The vectors of draft-irtf-cfrg-cpace-21, appendix B.3.
// ------------------------------------------------------------ encryption

constexpr Tls kAllTls[] = {Tls::kOff, Tls::kIfAsked, Tls::kPsk, Tls::kMutual};

Introduction with_tls(mv::base::Peer incarnation, Tls tls) {
  Introduction made = introduction(incarnation);
  made.tls = tls;
  return made;
}

/// Runs a hello. TLS in the middle of it is completed as a real one would be: with kPsk only if both keys are equal.
void run_with_tls(Talk& talk, const Between& between = nullptr, const std::string& d_channel = "of TLS", const std::string& l_channel = "of TLS") {
  talk.run(1 << 20, between);
  if (talk.dialer.state() != State::kTls || talk.listener.state() != State::kTls) return;
  if (talk.dialer.tls() == Tls::kPsk && talk.dialer.key() != talk.listener.key()) {
    talk.dialer.not_encrypted();
    talk.listener.not_encrypted();
    return;
  }
  talk.dialer.encrypted(d_channel);
  talk.listener.encrypted(l_channel);
  talk.dialing.hear({});
  talk.listening.hear({});
  talk.run(1 << 20, between);
}

void what_both_sides_say_decides_on_encryption(void**) {
  for (const Tls one : kAllTls)
    for (const Tls other : kAllTls) {
      assert_true(agree(one, other) == agree(other, one));
      Talk talk(with_tls(1, one), with_tls(2, other));
      run_with_tls(talk);
      const auto agreed = agree(one, other);
      for (const Handshake* side : {&talk.dialer, &talk.listener}) {
        assert_int_equal(side->state(), agreed ? State::kDone : State::kFailed);
        if (agreed) {
          assert_true(side->tls() == *agreed);
          continue;
        }
        assert_true(side->refusal() == Refusal::kTls);
        assert_int_equal(side->why("there").code(), MV_EAUTH);
        assert_non_null(strstr(side->why("there").text().c_str(), "POLYVERSO_TLS"));
      }
    }
  assert_true(agree(Tls::kPsk, Tls::kIfAsked) == Tls::kPsk && agree(Tls::kIfAsked, Tls::kIfAsked) == Tls::kOff);
  assert_true(!agree(Tls::kPsk, Tls::kOff) && !agree(Tls::kMutual, Tls::kPsk) && !agree(Tls::kMutual, Tls::kIfAsked));
}

void other_secrets_and_other_channels_lead_to_no_encryption(void**) {
  Talk other(with_tls(1, Tls::kPsk), with_tls(2, Tls::kPsk), "s", "t");
  run_with_tls(other);
  assert_true(other.nobody_believes() && other.dialer.refusal() == Refusal::kSecret && other.listener.refusal() == Refusal::kSecret);
  Talk mutual(with_tls(1, Tls::kMutual), with_tls(2, Tls::kMutual), "s", "t");
  run_with_tls(mutual);
  assert_true(mutual.nobody_believes());
  Talk relayed(with_tls(1, Tls::kMutual), with_tls(2, Tls::kMutual));
  run_with_tls(relayed, nullptr, "of the dialer's", "of the listener's");
  assert_true(relayed.nobody_believes());
}

/// Whatever is changed in what the sides say about TLS: they notice it, or do not connect.
void encryption_can_not_be_switched_off(void**) {
  constexpr size_t kFlags = 20;
  for (const Tls one : kAllTls)
    for (const Tls other : kAllTls)
      for (const Side victim : {Side::kDialer, Side::kListener})
        for (const std::byte change : {std::byte{4}, std::byte{8}, std::byte{12}}) {
          Talk talk(with_tls(1, one), with_tls(2, other));
          bool changed = false;
          run_with_tls(talk, [&](Side from, size_t, std::vector<std::byte>& said) {
            if (from != victim || std::exchange(changed, true)) return;
            said[kFlags] ^= change;
          });
          assert_true(talk.nobody_believes());
        }
}

void the_key_agreement_is_the_drafts(void**) {
  const auto bytes = [](const char* hex, auto made) {
    assert_int_equal(sodium_hex2bin(reinterpret_cast<unsigned char*>(made.data()), made.size(), hex, strlen(hex), nullptr, nullptr, nullptr), 0);
    return made;
  };
  const auto session = bytes("7e4b4791d6a8ef019b936c79fb7f2c57", std::array<std::byte, 16>());
  const auto a = bytes("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08", cpace::Scalar());
  const auto b = bytes("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d", cpace::Scalar());
  const auto generator = cpace::generator("Password", "\x0b" "A_initiator" "\x0b" "B_responder", session);
  assert_true(generator == bytes("222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56", cpace::Point()));
  const auto a_share = cpace::share(a, generator), b_share = cpace::share(b, generator);
  assert_true(a_share == bytes("d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157", cpace::Point()));
  assert_true(b_share == bytes("3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258", cpace::Point()));
  const cpace::Transcript transcript{a_share, "ADa", b_share, "ADb"};
  const auto key = bytes("b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd"
                         "2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447", cpace::Key());
  assert_true(cpace::key(a, b_share, session, transcript) == key);
  assert_true(cpace::key(b, a_share, session, transcript) == key);
  assert_false(cpace::key(a, cpace::Point(), session, transcript).has_value());
}

void garbage_is_no_hello(void**) {
  std::mt19937 random(7);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (int round = 0; round < 2000; ++round) {
    Handshake side(round % 2 ? Side::kListener : Side::kDialer, introduction(1), randomness(1));
    std::vector<std::byte> bytes(200);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (round == 0) std::memcpy(bytes.data(), http.data(), http.size());
    side.feed(bytes);
    assert_int_equal(side.state(), State::kFailed);
    assert_int_equal(side.why("x").code(), MV_EPROTOCOL);
    side.feed(bytes);  // further bytes are ignored
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
      cmocka_unit_test(the_other_byte_order_is_reported),
      cmocka_unit_test(either_side_may_refuse),
      cmocka_unit_test(a_secret_on_one_side_only_is_reported_on_both),
      cmocka_unit_test(without_secrets_the_message_is_about_users),
      cmocka_unit_test(a_relay_changes_the_channel),
      cmocka_unit_test(the_key_is_of_this_connection_alone),
      cmocka_unit_test(no_record_is_valid_in_another_hello),
      cmocka_unit_test(a_whole_conversation_can_not_be_replayed),
      cmocka_unit_test(a_mirror_is_not_believed),
      cmocka_unit_test(a_record_that_is_cut_short_is_waited_for),
      cmocka_unit_test(a_record_out_of_its_turn_ends_it),
      cmocka_unit_test(shares_that_are_no_points_are_refused),
      cmocka_unit_test(a_role_can_not_be_changed),
      cmocka_unit_test(an_older_version_can_not_be_forced),
      cmocka_unit_test(what_both_sides_say_decides_on_encryption),
      cmocka_unit_test(other_secrets_and_other_channels_lead_to_no_encryption),
      cmocka_unit_test(encryption_can_not_be_switched_off),
      cmocka_unit_test(the_key_agreement_is_the_drafts),
      cmocka_unit_test(a_changed_bit_anywhere_never_gets_through),
      cmocka_unit_test(garbage_is_no_hello),
      cmocka_unit_test(an_address_that_is_none_is_not_believed),
      cmocka_unit_test(a_goodbye_is_no_frame),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
