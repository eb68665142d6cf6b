#include "wire/handshake.hpp"

#include <sodium.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace mv::wire {

namespace {

constexpr uint32_t kHelloMagic = 0x4d56'4801;
constexpr uint32_t kByteOrderMark = 0x0102'0304;
constexpr uint32_t kSwappedMagic = 0x0148'564d;

// Every record starts with these 16 bytes. The magic and the sizes are the same in all future versions, which differ
// only in the messages after the hello.
struct RecordHead {
  uint32_t magic;
  uint32_t byte_order;
  uint32_t kind;    // Record
  uint32_t detail;  // Refuse: a Refusal
};
static_assert(sizeof(RecordHead) == 16 && sizeof(RecordHead) == kGoodbyeBytes);

struct HelloRecord {
  RecordHead head;
  uint16_t version_min, version_max;
  uint32_t flags;
  uint64_t incarnation;
  uint64_t capabilities;
  uint8_t nonce[kNonceBytes];
  char address[kAddressBytes];  // zero-padded
};
static_assert(sizeof(HelloRecord) == 136);
constexpr uint32_t kResumes = 1, kHasSecret = 2, kTlsShift = 2, kTlsMask = 3;

/// A Share or a Proof.
struct WordRecord {
  RecordHead head;
  std::array<std::byte, 32> word;
};
static_assert(sizeof(WordRecord) == 48);

/// The purposes that the key agreement binds into its keys.
constexpr std::string_view kChannel = "polyverso hello ";
constexpr std::string_view kDialerProves = "dialer", kListenerProves = "listener", kSessionKey = "session key";

RecordHead head_of(Record kind, uint32_t detail = 0) {
  return {kHelloMagic, kByteOrderMark, static_cast<uint32_t>(kind), detail};
}

template <typename T>
void append(std::vector<std::byte>& bytes, const T& record) {
  const auto* first = reinterpret_cast<const std::byte*>(&record);
  bytes.insert(bytes.end(), first, first + sizeof record);
}

void append_all(std::vector<std::byte>& bytes, const std::vector<std::byte>& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <typename T>
T read_as(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

size_t record_bytes(uint32_t kind) {
  switch (static_cast<Record>(kind)) {
    case Record::kHello:
      return sizeof(HelloRecord);
    case Record::kProof:
    case Record::kShare:
      return sizeof(WordRecord);
    case Record::kRefuse:
    case Record::kGoodbye:
    case Record::kAccept:
      return sizeof(RecordHead);
  }
  return 0;
}

/// The address if it is safe to log and to dial: printable, without blanks. Otherwise empty.
std::string clean_address(const char (&field)[kAddressBytes]) {
  const std::string address(field, strnlen(field, kAddressBytes));
  const bool fit = std::all_of(address.begin(), address.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return fit ? address : std::string();
}

const char* name_of(Tls tls) {
  switch (tls) {
    case Tls::kPsk:
      return "tls=psk, which is also the default beyond loopback";
    case Tls::kMutual:
      return "tls=mutual";
    case Tls::kIfAsked:
      return "tls=auto";
    case Tls::kOff:
      break;
  }
  return "tls=off, or no TLS";
}

}  // namespace

std::optional<Tls> agree(Tls one, Tls other) {
  const Tls least = std::min(one, other), most = std::max(one, other);
  if (most == Tls::kMutual) return least == most ? std::optional(most) : std::nullopt;
  if (most == Tls::kPsk) return least == Tls::kOff ? std::nullopt : std::optional(most);
  return Tls::kOff;
}

Handshake::Handshake(Side side, Introduction self, const Randomness& randomness)
    : side_(side), self_(std::move(self)), scalar_(cpace::scalar_from(randomness.scalar)) {
  HelloRecord hello{};
  hello.head = head_of(Record::kHello);
  hello.version_min = self_.version_min;
  hello.version_max = self_.version_max;
  hello.flags = (self_.resumes ? kResumes : 0) | (self_.has_secret ? kHasSecret : 0) | (static_cast<uint32_t>(self_.tls) << kTlsShift);
  hello.incarnation = self_.incarnation;
  hello.capabilities = self_.capabilities;
  std::memcpy(hello.nonce, randomness.nonce.data(), kNonceBytes);
  if (self_.address.size() < kAddressBytes) std::memcpy(hello.address, self_.address.data(), self_.address.size());
  append(own_hello_, hello);
  if (side_ == Side::kDialer) output_ = own_hello_;
}

Handshake::~Handshake() {
  for (auto* secret : {&session_, &agreed_}) sodium_memzero(secret->data(), secret->size());
  sodium_memzero(scalar_.data(), scalar_.size());
  sodium_memzero(key_.data(), key_.size());
}

size_t Handshake::wants() const {
  if (state_ != State::kHello && state_ != State::kTls && state_ != State::kShare && state_ != State::kProof) return 0;
  if (input_.size() < sizeof(RecordHead)) return sizeof(RecordHead) - input_.size();
  return record_bytes(read_as<RecordHead>(input_).kind) - input_.size();
}

void Handshake::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty() && wants() > 0) {
    const size_t taken = std::min(bytes.size(), wants());
    input_.insert(input_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (input_.size() == sizeof(RecordHead)) {
      const auto head = read_as<RecordHead>(input_);
      if (head.magic == kSwappedMagic) return refuse(Refusal::kByteOrder);
      if (head.magic != kHelloMagic || head.byte_order != kByteOrderMark || record_bytes(head.kind) == 0)
        return fail_garbage();
    }
    if (wants() == 0) take_record();
  }
}

void Handshake::take_record() {
  const auto head = read_as<RecordHead>(input_);
  const auto kind = static_cast<Record>(head.kind);
  if (kind == Record::kRefuse) {
    fail(static_cast<Refusal>(head.detail), /*by_peer=*/true);
  } else if (kind == Record::kHello && state_ == State::kHello) {
    take_hello();
  } else if (kind == Record::kShare && state_ == State::kShare) {
    take_share();
  } else if (kind == Record::kProof && state_ == State::kProof && tls_ != Tls::kPsk) {
    take_proof();
  } else if (kind == Record::kAccept && state_ == State::kProof && tls_ == Tls::kPsk && side_ == Side::kDialer) {
    state_ = State::kDone;
  } else {
    fail_garbage();
  }
  input_.clear();
}

void Handshake::take_hello() {
  const auto hello = read_as<HelloRecord>(input_);
  peer_.incarnation = hello.incarnation;
  peer_.capabilities = hello.capabilities;
  peer_.version_min = hello.version_min;
  peer_.version_max = hello.version_max;
  peer_.resumes = (hello.flags & kResumes) != 0;
  peer_.has_secret = (hello.flags & kHasSecret) != 0;
  peer_.tls = static_cast<Tls>((hello.flags >> kTlsShift) & kTlsMask);
  peer_.address = clean_address(hello.address);
  peer_hello_ = input_;
  if (side_ == Side::kListener) append_all(output_, own_hello_);
  version_ = std::min(self_.version_max, peer_.version_max);
  if (version_ < std::max(self_.version_min, peer_.version_min)) return refuse(Refusal::kVersion);
  if (peer_.incarnation == base::kNobody) return fail_garbage();
  if (peer_.incarnation == self_.incarnation) return refuse(Refusal::kSelf);
  if (peer_.has_secret != self_.has_secret) return refuse(Refusal::kSecret);
  const auto tls = agree(self_.tls, peer_.tls);
  if (!tls) return refuse(Refusal::kTls);
  tls_ = *tls;

  crypto_hash_sha512_state hash;
  crypto_hash_sha512_init(&hash);
  for (const auto* hello_bytes : {side_ == Side::kDialer ? &own_hello_ : &peer_hello_, side_ == Side::kDialer ? &peer_hello_ : &own_hello_})
    crypto_hash_sha512_update(&hash, reinterpret_cast<const uint8_t*>(hello_bytes->data()), hello_bytes->size());
  crypto_hash_sha512_final(&hash, reinterpret_cast<uint8_t*>(session_.data()));
  state_ = tls_ == Tls::kMutual ? State::kTls : side_ == Side::kDialer ? State::kSecret : State::kShare;
}

void Handshake::encrypted(std::string_view channel) {
  assert(state_ == State::kTls);
  channel_ = channel;
  if (tls_ == Tls::kMutual)
    state_ = side_ == Side::kDialer ? State::kSecret : State::kShare;
  else
    state_ = side_ == Side::kDialer ? State::kProof : State::kDeciding;
}

void Handshake::not_encrypted() {
  assert(state_ == State::kTls);
  fail(tls_ == Tls::kPsk ? Refusal::kSecret : Refusal::kCertificate, /*by_peer=*/false);
}

void Handshake::prove(std::string_view secret, std::string_view channel) {
  assert(state_ == State::kSecret);
  const std::string purpose = std::string(kChannel).append(channel).append(channel_);
  own_share_ = cpace::share(scalar_, cpace::generator(secret, purpose, session_));
  if (side_ == Side::kListener && !agree_on_key()) return refuse(Refusal::kSecret);
  append(output_, WordRecord{head_of(Record::kShare), own_share_});
  state_ = side_ == Side::kDialer ? State::kShare : tls_ == Tls::kPsk ? State::kTls : State::kProof;
}

void Handshake::take_share() {
  peer_share_ = read_as<WordRecord>(input_).word;
  if (side_ == Side::kListener) {
    state_ = State::kSecret;
    return;
  }
  if (!agree_on_key()) return refuse(Refusal::kSecret);
  if (tls_ == Tls::kPsk) {
    state_ = State::kTls;
    return;
  }
  send_proof();
  state_ = State::kProof;
}

/// Computes the key from both Shares. False if no honest side would send the peer's Share.
bool Handshake::agree_on_key() {
  if (peer_share_ == own_share_) return false;
  const bool dials = side_ == Side::kDialer;
  const auto agreed = cpace::key(scalar_, peer_share_, session_,
                                 {dials ? own_share_ : peer_share_, kDialerProves, dials ? peer_share_ : own_share_, kListenerProves});
  if (!agreed) return false;
  agreed_ = *agreed;
  key_ = derive(kSessionKey);
  return true;
}

void Handshake::take_proof() {
  const auto proof = read_as<WordRecord>(input_).word;
  const auto expected = derive(side_ == Side::kDialer ? kListenerProves : kDialerProves);
  if (sodium_memcmp(proof.data(), expected.data(), expected.size()) != 0) return refuse(Refusal::kSecret);
  state_ = side_ == Side::kDialer ? State::kDone : State::kDeciding;
}

void Handshake::send_proof() {
  append(output_, WordRecord{head_of(Record::kProof), derive(side_ == Side::kDialer ? kDialerProves : kListenerProves)});
}

void Handshake::accept() {
  assert(state_ == State::kDeciding);
  if (tls_ == Tls::kPsk)
    append(output_, head_of(Record::kAccept));
  else
    send_proof();
  state_ = State::kDone;
}

void Handshake::refuse(Refusal why) {
  append(output_, head_of(Record::kRefuse, static_cast<uint32_t>(why)));
  fail(why, /*by_peer=*/false);
}

void Handshake::fail(Refusal why, bool by_peer) {
  state_ = State::kFailed;
  refusal_ = why;
  by_peer_ = by_peer;
}

void Handshake::fail_garbage() { fail(Refusal::kNone, /*by_peer=*/false); }

Handshake::Key Handshake::derive(std::string_view label) const {
  crypto_auth_hmacsha512_state mac;
  crypto_auth_hmacsha512_init(&mac, reinterpret_cast<const uint8_t*>(agreed_.data()), agreed_.size());
  crypto_auth_hmacsha512_update(&mac, reinterpret_cast<const uint8_t*>(label.data()), label.size());
  cpace::Key whole;
  crypto_auth_hmacsha512_final(&mac, reinterpret_cast<uint8_t*>(whole.data()));
  Key derived;
  std::copy_n(whole.begin(), derived.size(), derived.begin());
  return derived;
}

base::Status Handshake::why_not_proved(std::string_view address) const {
  if (peer_.incarnation != base::kNobody && self_.has_secret != peer_.has_secret) {
    return base::error(MV_EAUTH, "{} has {} secret and this process has {}: set POLYVERSO_SECRET (or `secret`) to the same on both", address,
                       peer_.has_secret ? "a" : "no", self_.has_secret ? "one" : "none");
  }
  if (self_.has_secret) {
    return base::error(
        MV_EAUTH, "{} has a different secret from this process: set POLYVERSO_SECRET (or `secret`) to the same on both", address);
  }
  return base::error(MV_EAUTH,
                     "neither this process nor {} has a secret, and they could not prove that they belong to one user of one machine: "
                     "set POLYVERSO_SECRET (or `secret`) to the same on both",
                     address);
}

base::Status Handshake::why_not_encrypted(std::string_view address) const {
  if (agree(self_.tls, peer_.tls) && by_peer_)
    return base::error(MV_EAUTH, "{} can't encrypt the connection that this process demands: its log tells why", address);
  if (agree(self_.tls, peer_.tls))
    return base::error(MV_EAUTH, "{} demands an encrypted connection, which this process can't make: the log tells why", address);
  return base::error(MV_EAUTH, "{} has {}, and this process {}: set tls (POLYVERSO_TLS) to the same on both", address, name_of(peer_.tls),
                     name_of(self_.tls));
}

base::Status Handshake::why(std::string_view address) const {
  switch (refusal_) {
    case Refusal::kVersion:
      if (peer_.version_max != 0) {
        return base::error(
            MV_EVERSION,
            "{} speaks protocol versions {} to {}, this process {} to {}: use the same release of Polyverso everywhere",
            address, peer_.version_min, peer_.version_max, self_.version_min, self_.version_max);
      }
      return base::error(MV_EVERSION,
                         "{} does not speak protocol versions {} to {}: use the same release of Polyverso everywhere",
                         address, self_.version_min, self_.version_max);
    case Refusal::kByteOrder:
      return base::error(MV_EVERSION, "{} is a machine with a different byte order; Polyverso needs little-endian machines",
                         address);
    case Refusal::kSecret:
    case Refusal::kUser:
      return why_not_proved(address);
    case Refusal::kTls:
      return why_not_encrypted(address);
    case Refusal::kCertificate:
      return base::error(MV_EAUTH, "{} refused this process's certificate: the log of that process tells why; check tls_cert and tls_ca of both", address);
    case Refusal::kFenced:
      return base::error(MV_EPEERLOST, "{} considers this process lost and accepts it only after a restart",
                         address);
    case Refusal::kDuplicate:
      return base::error(MV_EUNREACHABLE, "{} already has a connection with this process", address);
    case Refusal::kSelf:
      return base::error(MV_EUNREACHABLE, "{} is the address of this process itself", address);
    case Refusal::kBusy:
      return base::error(MV_EUNREACHABLE, "{} has too many connections that are not authenticated yet", address);
    case Refusal::kStranger:
      return base::error(MV_EPEERLOST, "{} now belongs to a different process", address);
    case Refusal::kNone:
      break;
  }
  if (by_peer_)
    return base::error(MV_EPROTOCOL, "{} refused the connection for a reason unknown to this version", address);
  return base::error(MV_EPROTOCOL, "{} answers, but not in Polyverso's protocol: is something else listening there?",
                     address);
}

std::array<std::byte, kGoodbyeBytes> goodbye() {
  const RecordHead head = head_of(Record::kGoodbye);
  std::array<std::byte, kGoodbyeBytes> bytes;
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

bool is_goodbye(std::span<const std::byte> bytes) {
  const RecordHead head = head_of(Record::kGoodbye);
  return bytes.size() >= sizeof head && std::memcmp(bytes.data(), &head, sizeof head) == 0;
}

}  // namespace mv::wire
