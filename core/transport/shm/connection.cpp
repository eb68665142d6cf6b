#include "transport/shm/connection.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/log.hpp"
#include "base/memory_fence.hpp"

namespace mv::transport {

namespace {

/// Per turn of the loop and connection, so that one busy peer does not starve the others.
constexpr size_t kTakeBudget = 2 << 20;
constexpr size_t kLeastRingBytes = 64 << 10, kMostRingBytes = 64 << 20;
/// The largest number of segments of payloads that one peer may have introduced at a time.
constexpr size_t kMostSegments = 1024;

static_assert(record_bytes(Sender::kWholeBytes) < kRecordLimit &&
              record_bytes(wire::kMaxHeaderBytes + (8 << 10)) < kRecordLimit);

/// Whether a descriptor is a non-blocking eventfd. This side writes to a peer's bell, so the write must never block.
bool is_bell(int fd) {
  char link[64], target[64] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, target, sizeof target - 1);
  return length > 0 && std::strcmp(target, "anon_inode:[eventfd]") == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

/// Whether this process has as many descriptors as it may have. The kernel then drops those that come by a socket.
bool descriptors_are_out(int fd) {
  const Fd another(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return !another && (errno == EMFILE || errno == ENFILE);
}

}  // namespace

ShmConnection::ShmConnection(Loop& loop, ShmEvents& owner, std::string address, Fd fd)
    : loop_(loop), owner_(owner), address_(std::move(address)), fd_(std::move(fd)) {}

ShmConnection::~ShmConnection() {
  asked_.clear();
  if (state_ != State::kDead) kill();
}

void ShmConnection::set_state(State next) {
  assert(next > state_);
  state_ = next;
}

// ------------------------------------------------------------ the hello

void ShmConnection::greet(wire::Handshake handshake) {
  handshake_.emplace(std::move(handshake));
  poll_ = Poll::make(loop_, fd_.get(), [this](int) { on_socket(); });
  if (!poll_) return fail(base::error(MV_ESYSTEM, "can't watch the socket to {}", address_));
  if (!is_same_user(fd_.get())) return fail(base::error(MV_EAUTH, "{} belongs to another user", address_));
  continue_greeting();
}

void ShmConnection::continue_greeting() {
  auto& output = handshake_->output();
  if (!output.empty()) {  // a few hundred bytes into an empty socket: all or nothing
    const ssize_t sent = ::send(fd_.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(output.size()) && handshake_->state() != wire::Handshake::State::kFailed)
      return fail(base::error(MV_EUNREACHABLE, "{} closed its socket during the hello", address_));
    output.clear();
  }
  if (handshake_->state() == wire::Handshake::State::kFailed) return fail(handshake_->why(address_));
  if (handshake_->state() == wire::Handshake::State::kDone) {
    set_state(State::kOffering);
    if (const base::Status status = make_offer(); !status.ok()) return fail(status);
  }
  poll_->watch(handshake_->undecided() ? 0 : UV_READABLE);
}

void ShmConnection::read_hello() {
  while (state_ == State::kGreeting && handshake_->wants() > 0) {
    std::array<std::byte, 256> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), std::min(buffer.size(), handshake_->wants()), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return fail(base::error(MV_EUNREACHABLE, "{} closed its socket during the hello", address_));
    handshake_->feed(std::span(buffer).first(static_cast<size_t>(got)));
    if (handshake_->undecided()) {
      poll_->watch(0);
      return owner_.on_deciding(*this);
    }
    if (handshake_->wants() == 0 || !handshake_->output().empty()) continue_greeting();
  }
}

base::Status ShmConnection::make_offer() {
  auto made = base::SharedMemory::make("polyverso-ring", kControlBytes + kRingBytes);
  if (!made.ok()) return made.status();
  own_ = std::move(made).value();
  Control& page = own_page();
  page.ring_bytes = kRingBytes;
  page.wants_read = kNoWish;
  page.magic = Control::kMagic;
  if (loop_.bell() < 0) return base::error(MV_ESYSTEM, "can't create an eventfd: out of descriptors?");
  Note note;
  note.kind = Note::Type::kOffer;
  note.bytes = own_->bytes();
  const int descriptors[] = {own_->fd(), loop_.bell()};
  if (send_note(fd_.get(), note, descriptors)) return {};
  const bool ended = errno == EPIPE || errno == ECONNRESET;  // the peer has just closed: not a system error
  return base::error(ended ? MV_EUNREACHABLE : MV_ESYSTEM, "can't pass descriptors to {}: {}", address_, std::strerror(errno));
}

base::Status ShmConnection::take_offer(const Note& note, std::array<Fd, kNoteFds>& fds) {
  if (note.kind != Note::Type::kOffer || !fds[0] || !fds[1])
    return base::error(MV_EPROTOCOL, "{} did not send its shared memory", address_);
  if (!is_bell(fds[1].get())) return base::error(MV_EPROTOCOL, "{} sent a descriptor that is not an eventfd", address_);
  peer_bell_ = std::move(fds[1]);
  loop_.descriptors().add(peer_bell_.get());
  return map_offer(note, std::move(fds[0]));
}

base::Status ShmConnection::map_offer(const Note& note, Fd segment) {
  const auto wrong = [&](const char* what) {
    return base::error(MV_EPROTOCOL, "{} sent shared memory {}", address_, what);
  };
  struct stat about {};
  if (fstat(segment.get(), &about) != 0 || static_cast<uint64_t>(about.st_size) != note.bytes ||
      note.bytes < kControlBytes + kLeastRingBytes || note.bytes > kControlBytes + kMostRingBytes)
    return wrong("of an invalid size");
  auto mapped = base::SharedMemory::adopt(segment.release(), note.bytes);
  if (!mapped.ok()) return mapped.status();
  peer_ = std::move(mapped).value();
  peer_ring_bytes_ = peer_page().ring_bytes.load();
  if (peer_page().magic.load() != Control::kMagic || !std::has_single_bit(peer_ring_bytes_) ||
      kControlBytes + peer_ring_bytes_ != peer_->bytes())
    return wrong("with an invalid header");
  return {};
}

void ShmConnection::fail(const base::Status& why) {
  kill();
  owner_.on_failed(*this, why);
}

// ------------------------------------------------------------ open

void ShmConnection::open(base::LinkEvents& events, base::Peer peer) {
  sender_.emplace(own_page(), own_->data() + kControlBytes, kRingBytes, peer_page(),
                  [this](const auto& memory) { return introduce(memory); });
  receiver_.emplace(
      events, peer, peer_page(), peer_->data() + kControlBytes, peer_ring_bytes_, own_page(),
      [this](uint64_t number) { return find(number); },
      [this](uint64_t number) {
        segments_.erase(number);
      });
  set_state(State::kOpen);  // last: if memory runs out above, the loop must not call this connection as an open one
}

void ShmConnection::send(const base::Frame& frame) {
  if (state_ == State::kOpen) sender_->push(frame);
}

void ShmConnection::flush() {
  if (state_ != State::kOpen && state_ != State::kClosing) return;
  if (!sender_->publish()) return;
  own_page().processor.store(static_cast<uint32_t>(sched_getcpu()), std::memory_order_relaxed);
  base::full_fence();
  ring_bell();
}

/// Wakes the peer if it sleeps. To be called after a store that the peer may be waiting for, and a fence: this is the
/// waker's half of Dekker's pattern (base/memory_fence.hpp); ShmTransport::before_sleep() is the sleeper's half.
/// tests/models/shm_bell.pml is the model.
void ShmConnection::ring_bell() {
  const uint64_t nap = peer_page().naps.load(std::memory_order_relaxed);
  if (nap % 2 == 0 || nap == rung_for_) return;
  rung_for_ = nap;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(peer_bell_.get(), &one, sizeof one);  // full: it is ringing already
}

bool ShmConnection::poll() {
  if (state_ != State::kOpen && state_ != State::kClosing) return false;
  bool any = false;
  if (state_ == State::kClosing) {
    any = receiver_->pass_over();
    if (any) tell_room();
  } else if (receiver_->ready()) {
    any = true;
    take(kTakeBudget);
  }
  if (state_ != State::kOpen && state_ != State::kClosing) return any;
  if (sender_->may_advance()) {
    any = true;
    if (const base::Status status = sender_->advance(); !status.ok()) {
      garbage(status);
      return true;
    }
    flush();
  }
  if (state_ == State::kClosing && sender_->all_read() && !std::exchange(half_closed_, true))
    shutdown(fd_.get(), SHUT_WR);
  return any;
}

void ShmConnection::drain() {
  if (state_ == State::kOpen) take(peer_ring_bytes_);
}

void ShmConnection::take(size_t budget) {
  inside_take_ = true;
  const base::Status status = receiver_->take(budget);
  inside_take_ = false;
  if (state_ != State::kOpen) return;  // closed by a callback
  if (!status.ok()) return garbage(status);
  if (receiver_->goodbye()) return end(End::kGoodbye, base::error(MV_EPEERLOST, "{} closed the connection", address_));
  tell_room();
}

/// Wakes the peer if it waits for room, after records were read.
void ShmConnection::tell_room() {
  base::full_fence();
  if (peer_page().wants_read.load(std::memory_order_relaxed) <= own_page().read.load(std::memory_order_relaxed))
    ring_bell();
}

void ShmConnection::say_asleep() {
  if (state_ != State::kOpen && state_ != State::kClosing) return;
  std::erase_if(introduced_, [&](const auto& known) {
    if (!known.second.memory.expired()) return false;
    sender_->push_mark(RecordKind::kForget, static_cast<uint32_t>(known.second.number));
    return true;
  });
  flush();
  Control& page = own_page();
  page.wants_read.store(sender_->wish(state_ == State::kClosing), std::memory_order_relaxed);
  page.naps.store(page.naps.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
}

bool ShmConnection::is_quiet() const {
  if (state_ != State::kOpen && state_ != State::kClosing) return true;
  const bool has_news = state_ == State::kClosing ? receiver_->has_more() : receiver_->ready();
  return !has_news && (!sender_->may_advance() || !sender_->wish_come_true());
}

bool ShmConnection::is_elsewhere(uint32_t processor) const {
  return state_ == State::kOpen && peer_page().processor.load(std::memory_order_relaxed) != processor;
}

void ShmConnection::say_awake() {
  if (own_ == nullptr) return;
  Control& page = own_page();
  const uint64_t naps = page.naps.load(std::memory_order_relaxed);
  if (naps % 2 != 0) page.naps.store(naps + 1, std::memory_order_relaxed);
}

// ------------------------------------------------------------ ends

void ShmConnection::say_goodbye() {
  if (state_ != State::kOpen) return kill();
  receiver_->stop();
  sender_->push_mark(RecordKind::kGoodbye);
  set_state(State::kClosing);
  flush();
}

void ShmConnection::cut() {
  if (state_ == State::kOpen) shutdown(fd_.get(), SHUT_RDWR);
}

void ShmConnection::kill() {
  if (state_ != State::kDead) set_state(State::kDead);
  if (receiver_) receiver_->stop();
  if (sender_) sender_->let_go();
  if (own_ != nullptr) say_awake();
  if (poll_) poll_->watch(0);  // lives until the owner frees this object: this may run inside its callback
  if (fd_) shutdown(fd_.get(), SHUT_RDWR);
  if (peer_bell_) loop_.descriptors().remove(peer_bell_.get());
  peer_bell_.reset();
  for (const Given& given : std::exchange(asked_, {})) given(nullptr);
}

void ShmConnection::end(End how, const base::Status& why) {
  kill();
  owner_.on_ended(*this, how, why);
}

void ShmConnection::garbage(const base::Status& status) {
  end(End::kGarbage, base::error(MV_EPROTOCOL, "{}: {}", address_, status.text()));
}

void ShmConnection::end_of_stream() {
  switch (state_) {
    case State::kGreeting:
    case State::kOffering:
    case State::kStanding:
      return fail(base::error(MV_EPROTOCOL, "{} closed its socket before shared memory was set up", address_));
    case State::kOpen:
      drain();  // everything sent before the end
      if (state_ != State::kOpen) return;
      return end(End::kBroken, base::error(MV_EUNREACHABLE, "{} no longer serves its shared memory", address_));
    case State::kClosing:
      return end(End::kClosed, {});
    case State::kDead:
      return;
  }
}

// ------------------------------------------------------------ the socket

void ShmConnection::on_socket() {
  if (state_ == State::kGreeting) return read_hello();
  if (state_ != State::kDead) read_notes();
}

void ShmConnection::read_notes() {
  while (state_ != State::kDead) {
    Note note;
    std::array<Fd, kNoteFds> fds;
    const NoteReader::Read read = notes_.read(fd_.get(), &note, &fds);
    if (read == NoteReader::Read::kNothingYet) return;
    if (read == NoteReader::Read::kEnd) return inside_take_ ? void() : end_of_stream();
    if (state_ != State::kClosing) take_note(note, fds);
  }
}

void ShmConnection::take_note(const Note& note, std::array<Fd, kNoteFds>& fds) {
  if (note.magic != Note::kMagic)
    return end_or_fail(base::error(MV_EPROTOCOL, "{} sent unexpected data on its socket", address_));
  if (state_ == State::kOffering) {
    if (const base::Status status = take_offer(note, fds); !status.ok()) return fail(status);
    set_state(State::kStanding);
    return owner_.on_standing(*this);
  }
  switch (note.kind) {
    case Note::Type::kSegment:
      return take_segment(note, std::move(fds[0]));
    case Note::Type::kAsk:
      return answer(note);
    case Note::Type::kAnswer: {
      if (asked_.empty()) break;
      const Given given = std::move(asked_.front());
      asked_.pop_front();
      auto memory = fds[0] ? base::SharedMemory::adopt(fds[0].release(), 1)
                           : base::Result<std::shared_ptr<base::SharedMemory>>(nullptr);
      return given(memory.ok() ? std::move(memory).value() : nullptr);
    }
    case Note::Type::kOffer:
      break;
  }
  end_or_fail(base::error(MV_EPROTOCOL, "{} sent an unexpected note ({})", address_,
                          static_cast<uint32_t>(note.kind)));
}

void ShmConnection::end_or_fail(const base::Status& why) {
  state_ < State::kOpen ? fail(why) : end(End::kGarbage, why);
}

// ------------------------------------------------------------ payloads and tables in shared memory

std::optional<uint64_t> ShmConnection::introduce(const std::shared_ptr<base::SharedMemory>& memory) {
  if (const auto known = introduced_.find(memory.get()); known != introduced_.end()) {
    if (known->second.memory.lock() == memory) return known->second.number;
    sender_->push_mark(RecordKind::kForget, static_cast<uint32_t>(known->second.number));
    introduced_.erase(known);
  }
  if (introduced_.size() >= kMostSegments) return std::nullopt;
  Note note;
  note.kind = Note::Type::kSegment;
  note.number = next_number_;
  note.bytes = memory->bytes();
  const int descriptors[] = {memory->fd()};
  if (!send_note(fd_.get(), note, descriptors)) return std::nullopt;
  introduced_[memory.get()] = {next_number_, memory};
  return next_number_++;
}

void ShmConnection::take_segment(const Note& note, Fd fd) {
  if (!fd && descriptors_are_out(fd_.get()))
    return end_or_fail(base::error(MV_ESYSTEM,
                                   "this process has no file descriptors left for memory of {}: raise the limit (ulimit -n) of all processes",
                                   address_));
  if (!fd || segments_.contains(note.number) || segments_.size() >= 2 * kMostSegments)
    return end_or_fail(base::error(MV_EPROTOCOL, "{} announced segment {} incorrectly", address_, note.number));
  auto memory = base::SharedMemory::adopt(fd.release(), note.bytes);
  if (!memory.ok()) return end_or_fail(memory.status());
  segments_[note.number] = std::move(memory).value();
}

std::shared_ptr<base::SharedMemory> ShmConnection::find(uint64_t number) {
  auto known = segments_.find(number);
  if (known == segments_.end() &&
      state_ == State::kOpen) {  // introduced before the record was written: its note is in the socket
    read_notes();
    known = segments_.find(number);
  }
  return known != segments_.end() ? known->second : nullptr;
}

void ShmConnection::ask(uint64_t number, Given given) {
  Note note;
  note.kind = Note::Type::kAsk;
  note.number = number;
  if (state_ != State::kOpen || !send_note(fd_.get(), note, {})) return given(nullptr);
  asked_.push_back(std::move(given));
}

void ShmConnection::answer(const Note& note) {
  const auto memory = owner_.on_asked(*this, note.number);
  Note reply;
  reply.kind = Note::Type::kAnswer;
  reply.number = note.number;
  reply.bytes = memory ? memory->bytes() : 0;
  const int descriptors[] = {memory ? memory->fd() : -1};
  if (send_note(fd_.get(), reply, std::span(descriptors).first(memory ? 1 : 0))) return;
  if (memory && send_note(fd_.get(), reply, {})) return;  // too many descriptors in flight: answer without memory
  end(End::kBroken, base::error(MV_EUNREACHABLE, "{} does not read its socket", address_));
}

}  // namespace mv::transport
