#include "wire/hello.hpp"

#include <sodium.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace mv::wire {

namespace {

constexpr uint32_t kHelloMagic = 0x4d56'4801;
constexpr uint32_t kByteOrderMark = 0x0102'0304;
constexpr uint32_t kSwappedMagic = 0x0148'564d;

// Every record starts with these 16 bytes. The magic and the sizes are the same in all versions to come: versions differ only in
// what follows the hello.
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
constexpr uint32_t kResumes = 1;

struct ProofRecord {
  RecordHead head;
  uint8_t mac[crypto_auth_hmacsha256_BYTES];
};
static_assert(sizeof(ProofRecord) == 48);

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
      return sizeof(ProofRecord);
    case Record::kRefuse:
    case Record::kGoodbye:
      return sizeof(RecordHead);
  }
  return 0;
}

/// An address that is fit for a log line and a dial: printable, without blanks.
std::string clean_address(const char (&field)[kAddressBytes]) {
  const std::string address(field, strnlen(field, kAddressBytes));
  const bool fit = std::all_of(address.begin(), address.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return fit ? address : std::string();
}

}  // namespace

Handshake::Handshake(Side side, Introduction self, std::string_view secret, const Nonce& nonce)
    : side_(side), self_(std::move(self)), secret_(secret) {
  HelloRecord hello{};
  hello.head = head_of(Record::kHello);
  hello.version_min = self_.version_min;
  hello.version_max = self_.version_max;
  hello.flags = self_.resumes ? kResumes : 0;
  hello.incarnation = self_.incarnation;
  hello.capabilities = self_.capabilities;
  std::memcpy(hello.nonce, nonce.data(), kNonceBytes);
  if (self_.address.size() < kAddressBytes) std::memcpy(hello.address, self_.address.data(), self_.address.size());
  append(own_hello_, hello);
  if (side_ == Side::kDialer) output_ = own_hello_;
}

size_t Handshake::wants() const {
  if (state_ != State::kHello && state_ != State::kProof) return 0;
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
  } else if (kind == Record::kProof && state_ == State::kProof) {
    take_proof();
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
  peer_.address = clean_address(hello.address);
  peer_hello_ = input_;
  if (side_ == Side::kListener) append_all(output_, own_hello_);
  version_ = std::min(self_.version_max, peer_.version_max);
  if (version_ < std::max(self_.version_min, peer_.version_min)) return refuse(Refusal::kVersion);
  if (peer_.incarnation == base::kNobody) return fail_garbage();
  if (peer_.incarnation == self_.incarnation) return refuse(Refusal::kSelf);

  state_ = side_ == Side::kDialer ? State::kDeciding : State::kProof;
}

void Handshake::take_proof() {
  const auto proof = read_as<ProofRecord>(input_);
  const auto expected = proof_of(side_ == Side::kDialer ? Side::kListener : Side::kDialer, peer_hello_, own_hello_);
  if (sodium_memcmp(proof.mac, expected.data(), expected.size()) != 0) return refuse(Refusal::kSecret);
  state_ = side_ == Side::kDialer ? State::kDone : State::kDeciding;
}

void Handshake::accept() {
  assert(state_ == State::kDeciding);
  ProofRecord proof{};
  proof.head = head_of(Record::kProof);
  const auto mac = proof_of(side_, own_hello_, peer_hello_);
  std::memcpy(proof.mac, mac.data(), mac.size());
  append(output_, proof);
  state_ = side_ == Side::kDialer ? State::kProof : State::kDone;
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

std::array<std::byte, 32> Handshake::proof_of(Side side, std::span<const std::byte> own,
                                              std::span<const std::byte> others) const {
  static_assert(crypto_auth_hmacsha256_BYTES == 32);
  crypto_auth_hmacsha256_state mac;
  crypto_auth_hmacsha256_init(&mac, reinterpret_cast<const uint8_t*>(secret_.data()), secret_.size());
  const uint32_t role = static_cast<uint32_t>(side);
  crypto_auth_hmacsha256_update(&mac, reinterpret_cast<const uint8_t*>(&role), sizeof role);
  crypto_auth_hmacsha256_update(&mac, reinterpret_cast<const uint8_t*>(own.data()), own.size());
  crypto_auth_hmacsha256_update(&mac, reinterpret_cast<const uint8_t*>(others.data()), others.size());
  std::array<std::byte, 32> out;
  crypto_auth_hmacsha256_final(&mac, reinterpret_cast<uint8_t*>(out.data()));
  return out;
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
      return base::error(MV_EVERSION, "{} is a machine of the other byte order; Polyverso needs little-endian machines",
                         address);
    case Refusal::kSecret:
      return base::error(
          MV_EAUTH, "{} has another secret than this process: set POLYVERSO_SECRET (or `secret`) to the same on both",
          address);
    case Refusal::kFenced:
      return base::error(MV_EPEERLOST, "{} has given up on this process and takes it back only after a restart",
                         address);
    case Refusal::kDuplicate:
      return base::error(MV_EUNREACHABLE, "{} has another connection with this process already", address);
    case Refusal::kSelf:
      return base::error(MV_EUNREACHABLE, "{} is this very process", address);
    case Refusal::kBusy:
      return base::error(MV_EUNREACHABLE, "{} has too many connections that are not authenticated yet", address);
    case Refusal::kStranger:
      return base::error(MV_EPEERLOST, "{} is another process now", address);
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
