#include "shm_stranger.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace mv::test {

ShmStranger::ShmStranger(const std::string& address) {
  auto connected = transport::connect_abstract("polyverso-" + address.substr(address.find(':') + 1));
  if (!connected.ok()) return;
  fd_ = std::move(connected).value();
  fcntl(fd_.get(), F_SETFL, 0);
}

ShmStranger::~ShmStranger() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
  if (peer_memory_ != nullptr) munmap(peer_memory_, peer_bytes_);
}

bool ShmStranger::send(std::span<const std::byte> bytes) {
  return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool ShmStranger::introduce(base::Peer self, const std::string& secret) {
  wire::Introduction introduction;
  introduction.incarnation = self;
  introduction.has_secret = !secret.empty();
  wire::Handshake::Randomness randomness;
  randomness.nonce[0] = randomness.scalar[0] = static_cast<std::byte>(self);
  wire::Handshake handshake(wire::Handshake::Side::kDialer, introduction, randomness);
  for (;;) {
    if (!handshake.output().empty() && !send(handshake.output())) return false;
    handshake.output().clear();
    if (handshake.state() == wire::Handshake::State::kDone) return true;
    if (handshake.state() == wire::Handshake::State::kFailed) return false;
    if (handshake.state() == wire::Handshake::State::kSecret) {
      handshake.prove(secret);
      continue;
    }
    std::array<std::byte, 256> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), std::min(buffer.size(), handshake.wants()), 0);
    if (got <= 0) return false;
    handshake.feed(std::span(buffer).first(static_cast<size_t>(got)));
  }
}

bool ShmStranger::offer(const Offer& offer) {
  memfd_ = transport::Fd(memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(memfd_.get(), static_cast<off_t>(offer.bytes)) != 0) return false;
  memory_bytes_ = offer.bytes;
  memory_ = static_cast<std::byte*>(mmap(nullptr, offer.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_.get(), 0));
  if (memory_ == MAP_FAILED) return false;
  if (offer.bytes >= sizeof(transport::Control)) {
    control().magic = offer.magic;
    control().ring_bytes = offer.ring_bytes;
    control().wants_read = transport::kNoWish;
  }
  if (offer.sealed) fcntl(memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  bell_ = transport::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (offer.bell_is_a_pipe) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    bell_ = transport::Fd(ends[1]);
    pipe_[0] = transport::Fd(ends[0]);
  }
  transport::Note note;
  note.kind = transport::Note::Type::kOffer;
  note.bytes = offer.said_bytes.value_or(offer.bytes);
  const int descriptors[] = {memfd_.get(), bell_.get()};
  return transport::send_note(fd_.get(), note, std::span(descriptors).first(offer.with_descriptors ? 2 : 0));
}

bool ShmStranger::take_offer() {
  transport::NoteReader reader;
  transport::Note note;
  std::array<transport::Fd, transport::kNoteFds> fds;
  pollfd watched{fd_.get(), POLLIN, 0};
  if (poll(&watched, 1, 20'000) <= 0) return false;
  if (reader.read(fd_.get(), &note, &fds) != transport::NoteReader::Read::kNote || !fds[0] || !fds[1]) return false;
  peer_bytes_ = note.bytes;
  peer_memory_ = static_cast<std::byte*>(mmap(nullptr, peer_bytes_, PROT_READ, MAP_SHARED, fds[0].get(), 0));
  peer_bell_ = std::move(fds[1]);
  return peer_memory_ != MAP_FAILED;
}

bool ShmStranger::is_turned_away() {
  for (;;) {
    pollfd watched{fd_.get(), POLLIN, 0};
    if (poll(&watched, 1, 20'000) <= 0) return false;
    std::array<std::byte, 4096> buffer;
    if (recv(fd_.get(), buffer.data(), buffer.size(), 0) <= 0) return true;
  }
}

void ShmStranger::show(uint64_t written) {
  control().written.store(written, std::memory_order_seq_cst);
  ring_bell();
}

void ShmStranger::ring_bell() { eventfd_write(peer_bell_.get(), 1); }

}  // namespace mv::test
