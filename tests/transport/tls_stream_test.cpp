// transport/tls: one stream in memory, against itself, against OpenSSL, and against what an attacker may do to the bytes.

#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "certificates.hpp"
#include "transport/tls/tls.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::test;
namespace transport = mv::transport;
using transport::TlsStream;
using Bytes = std::vector<std::byte>;
using State = TlsStream::State;

constexpr size_t kRecordHead = 5;

transport::TlsContext::Key key_of(int number) {
  transport::TlsContext::Key key{};
  key.fill(static_cast<std::byte>(number));
  return key;
}

std::unique_ptr<TlsStream> psk(bool dials, int key = 1) {
  static const auto kContext = transport::make_tls({});
  if (!kContext.ok()) fail_test("%s", kContext.status().text().c_str());
  auto made = kContext.value()->psk(dials, key_of(key));
  assert_true(made.ok());
  return std::move(made).value();
}

Bytes output_of(TlsStream& stream) {
  Bytes bytes(stream.output().begin(), stream.output().end());
  stream.sent(bytes.size());
  return bytes;
}

void give(TlsStream& stream, std::span<const std::byte> bytes) {
  while (!bytes.empty() && (stream.state() == State::kGreeting || stream.state() == State::kOpen)) {
    const std::span<std::byte> room = stream.room();
    assert_true(!room.empty());
    const size_t some = std::min(room.size(), bytes.size());
    std::copy_n(bytes.begin(), some, room.begin());
    stream.arrived(some);
    bytes = bytes.subspan(some);
  }
}

/// Lets both sides talk until neither has more to say.
void talk(TlsStream& a, TlsStream& b) {
  for (int quiet = 0; quiet < 2;) {
    const Bytes from_a = output_of(a), from_b = output_of(b);
    give(b, from_a);
    give(a, from_b);
    quiet = from_a.empty() && from_b.empty() ? quiet + 1 : 0;
  }
}

struct Both {
  explicit Both(int listeners_key = 1) : dialer(psk(true)), listener(psk(false, listeners_key)) {
    talk(*dialer, *listener);
  }
  std::unique_ptr<TlsStream> dialer, listener;
};

Bytes random_bytes(size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

/// Everything that has arrived, read in pieces of at most `most`.
Bytes read_all(TlsStream& stream, size_t most = 1 << 20) {
  Bytes all, piece(most);
  while (const size_t got = stream.open(piece))
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(got));
  return all;
}

/// Bytes of `from` that arrive at `to`, through their records.
Bytes carry(TlsStream& from, TlsStream& to, const Bytes& bytes, size_t most = 1 << 20) {
  Bytes all;
  for (std::span<const std::byte> rest(bytes); !rest.empty();) {
    const size_t taken = from.seal(rest);
    assert_true(taken > 0);
    rest = rest.subspan(taken);
    const Bytes sealed = output_of(from);
    for (std::span<const std::byte> coming(sealed); !coming.empty();) {
      const size_t some = std::min(coming.size(), to.room().size());
      give(to, coming.first(some));
      coming = coming.subspan(some);
      const Bytes got = read_all(to, most);
      all.insert(all.end(), got.begin(), got.end());
    }
  }
  return all;
}

void two_sides_with_one_key_understand_each_other(void**) {
  Both both;
  for (TlsStream* side : {both.dialer.get(), both.listener.get()}) {
    assert_int_equal(side->state(), State::kOpen);
    assert_non_null(strstr(side->cipher(), "TLS_"));
  }
  assert_true(both.dialer->binding() == both.listener->binding());
  Both others;
  assert_true(both.dialer->binding() != others.dialer->binding());
}

void bytes_of_every_size_arrive_in_rooms_of_every_size(void**) {
  Both both;
  for (const size_t size : {1ul, 15ul, 16ul, 17ul, 1000ul, 16'383ul, 16'384ul, 16'385ul, 100'000ul, 1'000'003ul})
    for (const size_t room : {1ul << 20, 16'384ul, 16'383ul, 4096ul, 7ul}) {
      if (size / room > 50'000) continue;
      const Bytes bytes = random_bytes(size, static_cast<unsigned>(size + room));
      assert_true(carry(*both.dialer, *both.listener, bytes, room) == bytes);
      assert_true(carry(*both.listener, *both.dialer, bytes, room) == bytes);
    }
}

void records_arrive_in_pieces(void**) {
  Both both;
  const Bytes bytes = random_bytes(40'000, 3);
  assert_int_equal(both.dialer->seal(bytes), bytes.size());
  const Bytes sealed = output_of(*both.dialer);
  Bytes got;
  for (const std::byte each : sealed) {
    give(*both.listener, {&each, 1});
    const Bytes more = read_all(*both.listener, 64);  // little to clear, 40,000 times
    got.insert(got.end(), more.begin(), more.end());
  }
  assert_true(got == bytes);
}

void sealed_bytes_contain_nothing_of_the_plain_ones(void**) {
  Both both;
  const Bytes bytes(20'000, std::byte{'x'});
  both.dialer->seal(bytes);
  const Bytes sealed = output_of(*both.dialer);
  size_t run = 0, longest = 0;
  for (const std::byte each : sealed) longest = std::max(longest, run = each == std::byte{'x'} ? run + 1 : 0);
  assert_true(longest < 8);
  // The same bytes again look different.
  both.dialer->seal(bytes);
  assert_true(output_of(*both.dialer) != sealed);
}

void another_key_is_refused_on_both_sides(void**) {
  Both both(2);
  for (TlsStream* side : {both.dialer.get(), both.listener.get()}) {
    assert_int_equal(side->state(), State::kFailed);
    assert_int_equal(side->why().code(), MV_EAUTH);
    assert_true(!side->why().text().empty());
    assert_int_equal(side->seal(random_bytes(10, 1)), 0);
  }
}

/// Gives `sealed` to a listener, and asserts that not one of its plain bytes comes out, or only the first `good`.
void assert_refused(TlsStream& listener, const Bytes& sealed, size_t good = 0) {
  give(listener, sealed);
  assert_int_equal(read_all(listener).size(), good);
  assert_int_equal(listener.state(), State::kFailed);
  assert_int_equal(read_all(listener).size(), 0);
}

void a_changed_bit_is_noticed_wherever_it_is(void**) {
  for (size_t at = 0; at < 100 + 22; ++at) {
    if (at == 3 || at == 4) continue;  // the size: the rest of a longer record would be awaited
    Both both;
    both.dialer->seal(random_bytes(100, 5));
    Bytes sealed = output_of(*both.dialer);
    assert_int_equal(sealed.size(), 100 + 22);
    sealed[at] ^= std::byte{1};
    assert_refused(*both.listener, sealed);
  }
  Both both;
  both.dialer->seal(random_bytes(100, 5));
  Bytes shorter = output_of(*both.dialer);
  shorter[4] ^= std::byte{1};  // 117 bytes become 116
  assert_refused(*both.listener, shorter);
}

void replayed_swapped_dropped_and_reflected_records_are_noticed(void**) {
  const auto seal = [](TlsStream& stream, unsigned seed) {
    stream.seal(random_bytes(100, seed));
    return output_of(stream);
  };
  {
    Both both;
    const Bytes once = seal(*both.dialer, 1);
    Bytes twice = once;
    twice.insert(twice.end(), once.begin(), once.end());
    assert_refused(*both.listener, twice, 100);
  }
  {
    Both both;
    const Bytes first = seal(*both.dialer, 1);
    Bytes second = seal(*both.dialer, 2);
    second.insert(second.end(), first.begin(), first.end());
    assert_refused(*both.listener, second);
  }
  {
    Both both;
    seal(*both.dialer, 1);
    assert_refused(*both.listener, seal(*both.dialer, 2));
  }
  {
    Both both;
    assert_refused(*both.dialer, seal(*both.dialer, 1));
  }
  {
    Both both, others;
    assert_refused(*others.listener, seal(*both.dialer, 1));
  }
}

void a_truncated_stream_delivers_whole_records_only(void**) {
  Both both;
  const Bytes bytes = random_bytes(50'000, 9);
  both.dialer->seal(bytes);
  Bytes sealed = output_of(*both.dialer);
  sealed.pop_back();
  give(*both.listener, sealed);
  const Bytes got = read_all(*both.listener);
  assert_int_equal(got.size(), 3 * 16'384);
  assert_memory_equal(got.data(), bytes.data(), got.size());
  assert_int_equal(both.listener->state(), State::kOpen);  // the end of the stream is for its user to judge
}

void garbage_before_the_handshake_is_refused(void**) {
  const char* const texts[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xff\xff garbage",
                               "\x15\x03\x03\x00\x02\x02\x28"};
  for (const char* text : texts) {
    const auto listener = psk(false);
    const size_t bytes = std::max(strlen(text), size_t{7});
    give(*listener, std::as_bytes(std::span(text, bytes)));
    Bytes much(256 << 10, std::byte{0});
    give(*listener, much);
    assert_int_equal(listener->state(), State::kFailed);
    assert_true(!listener->why().text().empty());
  }
}

// ------------------------------------------------------------ against OpenSSL itself

/// An ordinary program with OpenSSL, which has the same key.
class Program {
 public:
  explicit Program(bool dials, int newest = TLS1_3_VERSION, const transport::TlsFiles* files = nullptr,
                   const char* ciphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256")
      : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_max_proto_version(context_, newest);
    SSL_CTX_set_ciphersuites(context_, ciphers);
    SSL_CTX_set_psk_use_session_callback(
        context_, [](SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* bytes, SSL_SESSION** session) {
          *name = reinterpret_cast<const unsigned char*>("polyverso");
          *bytes = 9;
          *session = session_of(ssl);
          return 1;
        });
    SSL_CTX_set_psk_find_session_callback(context_, [](SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session) {
      *session = session_of(ssl);
      return 1;
    });
    if (files != nullptr) {
      assert_int_equal(SSL_CTX_use_certificate_chain_file(context_, files->cert.c_str()), 1);
      assert_int_equal(SSL_CTX_use_PrivateKey_file(context_, files->key.c_str(), SSL_FILETYPE_PEM), 1);
    }
    ssl_ = SSL_new(context_);
    SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    dials ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
  }
  ~Program() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  SSL* ssl() const { return ssl_; }
  void step() { SSL_do_handshake(ssl_); }
  Bytes output() {
    Bytes bytes(BIO_ctrl_pending(SSL_get_wbio(ssl_)));
    if (!bytes.empty()) BIO_read(SSL_get_wbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }
  void give(const Bytes& bytes) {
    if (!bytes.empty()) BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
  }
  void write(const Bytes& bytes) {
    assert_int_equal(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())), bytes.size());
  }
  Bytes read() {
    Bytes all, piece(20'000);
    for (int got; (got = SSL_read(ssl_, piece.data(), static_cast<int>(piece.size()))) > 0;)
      all.insert(all.end(), piece.begin(), piece.begin() + got);
    return all;
  }

 private:
  static SSL_SESSION* session_of(SSL* ssl) {
    static constexpr unsigned char kCipher[] = {0x13, 0x01};
    const auto key = key_of(1);
    SSL_SESSION* const session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()), key.size());
    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipher));
    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    return session;
  }
  SSL_CTX* const context_;
  SSL* ssl_;
};

void talk(Program& program, TlsStream& stream) {
  for (int i = 0; i < 6; ++i) {
    program.step();
    give(stream, program.output());
    program.give(output_of(stream));
  }
}

void exchange(Program& program, TlsStream& stream, unsigned seed) {
  const Bytes to = random_bytes(70'000, seed), from = random_bytes(70'000, seed + 1);
  assert_int_equal(stream.seal(to), to.size());
  program.give(output_of(stream));
  assert_true(program.read() == to);
  program.write(from);
  give(stream, program.output());
  assert_true(read_all(stream) == from);
}

void openssl_understands_it_in_both_roles(void**) {
  for (const bool dials : {true, false}) {
    Program program(!dials);
    const auto stream = psk(dials);
    talk(program, *stream);
    assert_int_equal(stream->state(), State::kOpen);
    exchange(program, *stream, 1);  // as the dialer, it has seen the program's tickets by then
  }
}

void openssl_may_choose_the_other_cipher(void**) {
  for (const bool dials : {true, false}) {
    Program program(!dials, TLS1_3_VERSION, nullptr, "TLS_CHACHA20_POLY1305_SHA256");
    const auto stream = psk(dials);
    talk(program, *stream);
    assert_int_equal(stream->state(), State::kOpen);
    assert_string_equal(stream->cipher(), "TLS_CHACHA20_POLY1305_SHA256");
    exchange(program, *stream, 3);
    program.write(random_bytes(100, 4));
    Bytes forged = program.output();
    forged[forged.size() - 20] ^= std::byte{1};  // before the tag
    give(*stream, forged);
    assert_int_equal(read_all(*stream).size(), 0);
    assert_int_equal(stream->state(), State::kFailed);
  }
}

void openssl_may_change_its_key_and_ask_for_ours(void**) {
  for (const bool dials : {true, false}) {
    Program program(!dials);
    const auto stream = psk(dials);
    talk(program, *stream);
    for (const int kind : {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED, SSL_KEY_UPDATE_REQUESTED}) {
      assert_int_equal(SSL_key_update(program.ssl(), kind), 1);
      program.write(random_bytes(10, 2));
      give(*stream, program.output());
      assert_int_equal(read_all(*stream).size(), 10);
      exchange(program, *stream, 7);
    }
  }
}

void openssl_may_pad_its_records(void**) {
  Program program(true);
  SSL_set_block_padding(program.ssl(), 1024);
  const auto stream = psk(false);
  talk(program, *stream);
  exchange(program, *stream, 11);
  program.write(random_bytes(1, 1));
  give(*stream, program.output());
  Bytes little(1);
  assert_int_equal(stream->open(little), 1);
}

void openssl_may_end_the_stream(void**) {
  Program program(true);
  const auto stream = psk(false);
  talk(program, *stream);
  SSL_shutdown(program.ssl());
  give(*stream, program.output());
  assert_int_equal(read_all(*stream).size(), 0);
  assert_int_equal(stream->state(), State::kEnded);
}

void an_older_version_is_refused(void**) {
  Authority authority;
  const auto files = authority.issue("node", "IP:127.0.0.1");
  for (const bool dials : {true, false}) {
    Program program(!dials, TLS1_2_VERSION, &files);
    const auto stream = psk(dials);
    talk(program, *stream);
    assert_int_equal(stream->state(), State::kFailed);
    assert_true(!stream->why().text().empty());
  }
}

void a_listener_with_a_certificate_in_place_of_the_key_is_refused(void**) {
  Authority authority;
  const auto files = authority.issue("node", "IP:127.0.0.1");
  Program program(false, TLS1_3_VERSION, &files);
  SSL_set_psk_find_session_callback(program.ssl(), nullptr);
  const auto stream = psk(true);
  talk(program, *stream);
  assert_int_equal(stream->state(), State::kFailed);
}

// ------------------------------------------------------------ certificates

struct Certified {
  /// `host`: what the dialer calls the listener.
  Certified(const transport::TlsFiles& dialers, const transport::TlsFiles& listeners,
            const std::string& host = "127.0.0.1") {
    auto a = transport::make_tls(dialers), b = transport::make_tls(listeners);
    assert_true(a.ok() && b.ok());
    dialer = std::move(a.value()->mutual(true, host)).value();
    listener = std::move(b.value()->mutual(false, "")).value();
    talk(*dialer, *listener);
    read_all(*dialer);  // an alert about its certificate comes after its own end of the handshake
  }
  void assert_open() const {
    assert_int_equal(dialer->state(), State::kOpen);
    assert_int_equal(listener->state(), State::kOpen);
  }
  void assert_failed(const char* dialers_reason, const char* listeners_reason) const {
    assert_int_equal(dialer->state(), State::kFailed);
    assert_int_equal(listener->state(), State::kFailed);
    for (const auto& [side, reason] :
         {std::pair(dialer.get(), dialers_reason), std::pair(listener.get(), listeners_reason)})
      if (strstr(side->why().text().c_str(), reason) == nullptr)
        fail_test("\"%s\" lacks \"%s\"", side->why().text().c_str(), reason);
  }
  std::unique_ptr<TlsStream> dialer, listener;
};

void certificates_of_one_authority_are_accepted(void**) {
  Authority authority;
  const auto a = authority.issue("a", "DNS:a.example"), b = authority.issue("b", "DNS:b.example,IP:127.0.0.1,IP:::1");
  for (const char* host : {"127.0.0.1", "::1", "b.example"}) Certified(a, b, host).assert_open();
  const Certified both(a, b);
  assert_true(both.listener->is_named("a.example"));
  assert_true(!both.listener->is_named("b.example") && !both.listener->is_named("127.0.0.1"));
  const Bytes bytes = random_bytes(100'000, 4);
  assert_true(carry(*both.dialer, *both.listener, bytes) == bytes);
}

/// Handshakes begin with little memory, since strangers make them.
void large_certificates_are_accepted_up_to_a_limit(void**) {
  Authority authority;
  const auto issue = [&](const char* name, int count) {
    std::string names = "IP:127.0.0.1";
    for (int i = 0; i < count; ++i) names += ",DNS:a-rather-long-name-of-a-host-" + std::to_string(i) + ".example";
    return authority.issue(name, names);
  };
  const auto large = issue("large", 500), huge = issue("huge", 3000);
  Certified(large, large).assert_open();
  const Certified both(large, huge);
  assert_int_equal(both.listener->state(), State::kFailed);
  assert_true(both.dialer->state() != State::kOpen);
}

void wrong_certificates_are_refused_with_a_reason(void**) {
  Authority authority, other;
  const auto good = authority.issue("good", "IP:127.0.0.1"), old = authority.issue("old", "IP:127.0.0.1", {-7200, -60}),
             early = authority.issue("early", "IP:127.0.0.1", {3600, 7200}), nameless = authority.issue("nameless", "");
  auto foreign = other.issue("foreign", "IP:127.0.0.1");
  foreign.ca = authority.file();
  Certified(good, good, "127.0.0.1").assert_open();
  Certified(good, good, "b.example").assert_failed("not for \"b.example\"", "refused");
  Certified(good, nameless).assert_failed("not for \"127.0.0.1\"", "refused");
  Certified(good, old).assert_failed("expired", "expired");
  Certified(old, good).assert_failed("expired", "expired");
  Certified(good, early).assert_failed("not valid yet", "refused");
  Certified(good, foreign).assert_failed("tls_ca", "refused");
  Certified(foreign, good).assert_failed("refused", "tls_ca");
}

void a_dialer_without_a_certificate_is_refused(void**) {
  Authority authority;
  const auto files = authority.issue("node", "IP:127.0.0.1");
  Program program(true);
  SSL_set_psk_use_session_callback(program.ssl(), nullptr);
  const auto context = transport::make_tls(files);
  const auto listener = std::move(context.value()->mutual(false, "")).value();
  talk(program, *listener);
  assert_int_equal(listener->state(), State::kFailed);
}

void files_that_change_are_read_again(void**) {
  Authority authority;
  const auto dialers = authority.issue("dialer", "IP:127.0.0.1");
  auto files = authority.issue("node", "IP:127.0.0.1", {-3600, 600});
  const auto context = transport::make_tls(files), dialing = transport::make_tls(dialers);
  const auto connects = [&](const char* host) {
    const auto dialer = std::move(dialing.value()->mutual(true, host)).value(),
               listener = std::move(context.value()->mutual(false, "")).value();
    talk(*dialer, *listener);
    return dialer->state() == State::kOpen;
  };
  const int64_t before = context.value()->expires().value();
  assert_true(connects("127.0.0.1") && !connects("new.example"));
  authority.issue("node", "DNS:new.example", {-3600, 6000});
  assert_true(connects("new.example") && !connects("127.0.0.1"));
  assert_true(context.value()->expires().value() > before + 3600);
  assert_true(context.value()->trouble().ok());
  // A file that can't be used leaves what was read before.
  std::FILE* const file = std::fopen(files.cert.c_str(), "we");
  std::fputs("no certificate\n", file);
  std::fclose(file);
  assert_true(connects("new.example"));
  assert_non_null(strstr(context.value()->trouble().text().c_str(), "tls_cert"));
}

void files_that_cannot_be_used_are_an_error_that_names_the_setting(void**) {
  Authority authority;
  const auto a = authority.issue("a", "IP:127.0.0.1"), b = authority.issue("b", "IP:127.0.0.1");
  const std::pair<transport::TlsFiles, const char*> wrong[] = {{{a.cert + "x", a.key, a.ca}, "tls_cert"},
                                                               {{a.cert, a.key + "x", a.ca}, "tls_key"},
                                                               {{a.cert, b.key, a.ca}, "tls_key"},
                                                               {{a.cert, a.key, a.ca + "x"}, "tls_ca"},
                                                               {{a.cert, a.key, a.key}, "tls_ca"}};
  for (const auto& [files, name] : wrong) {
    const auto made = transport::make_tls(files);
    assert_true(!made.ok());
    assert_int_equal(made.status().code(), MV_EINVAL);
    assert_non_null(strstr(made.status().text().c_str(), name));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(two_sides_with_one_key_understand_each_other),
      cmocka_unit_test(bytes_of_every_size_arrive_in_rooms_of_every_size),
      cmocka_unit_test(records_arrive_in_pieces),
      cmocka_unit_test(sealed_bytes_contain_nothing_of_the_plain_ones),
      cmocka_unit_test(another_key_is_refused_on_both_sides),
      cmocka_unit_test(a_changed_bit_is_noticed_wherever_it_is),
      cmocka_unit_test(replayed_swapped_dropped_and_reflected_records_are_noticed),
      cmocka_unit_test(a_truncated_stream_delivers_whole_records_only),
      cmocka_unit_test(garbage_before_the_handshake_is_refused),
      cmocka_unit_test(openssl_understands_it_in_both_roles),
      cmocka_unit_test(openssl_may_choose_the_other_cipher),
      cmocka_unit_test(openssl_may_change_its_key_and_ask_for_ours),
      cmocka_unit_test(openssl_may_pad_its_records),
      cmocka_unit_test(openssl_may_end_the_stream),
      cmocka_unit_test(an_older_version_is_refused),
      cmocka_unit_test(a_listener_with_a_certificate_in_place_of_the_key_is_refused),
      cmocka_unit_test(certificates_of_one_authority_are_accepted),
      cmocka_unit_test(large_certificates_are_accepted_up_to_a_limit),
      cmocka_unit_test(wrong_certificates_are_refused_with_a_reason),
      cmocka_unit_test(a_dialer_without_a_certificate_is_refused),
      cmocka_unit_test(files_that_change_are_read_again),
      cmocka_unit_test(files_that_cannot_be_used_are_an_error_that_names_the_setting),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
