#include "transport/tcp/connection.hpp"

#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"

namespace mv::transport {

namespace {

/// Per turn of the loop and connection, so that one busy peer does not starve the others.
constexpr size_t kReadBudget = 2 << 20;
constexpr size_t kWriteBudget = 2 << 20;
/// The limit of bytes to read and discard while waiting for the end of a connection that was refused or closed.
constexpr size_t kDrainLimit = 64 << 20;
constexpr size_t kPieces = 64;

constexpr size_t kMessageParts = 2;

}  // namespace

Connection::Connection(Loop& loop, ConnectionEvents& owner, std::string address, std::vector<Endpoint> endpoints)
    : loop_(loop),
      owner_(owner),
      address_(std::move(address)),
      state_(State::kConnecting),
      endpoints_(std::move(endpoints)) {}

Connection::Connection(Loop& loop, ConnectionEvents& owner, std::string address, Fd fd)
    : loop_(loop), owner_(owner), address_(std::move(address)), state_(State::kGreeting), fd_(std::move(fd)) {
  prepare_stream(fd_.get(), remote_endpoint(fd_.get()));
}

void Connection::set_state(State next) {
  assert(next > state_);
  state_ = next;
}

// ------------------------------------------------------------ connecting

void Connection::connect() { try_next_endpoint(0); }

void Connection::try_next_endpoint(int failure) {
  while (next_endpoint_ < endpoints_.size()) {
    poll_.reset();
    fd_ = start_connect(endpoints_[next_endpoint_++], &failure);
    if (!fd_) continue;
    poll_ = Poll::make(loop_, fd_.get(), [this](int events) { on_ready(events); });
    if (poll_) return poll_->watch(UV_WRITABLE);
    failure = ENOMEM;
  }
  fail(base::error(MV_EUNREACHABLE, "can't reach {}: {}", address_,
                   failure == 0 ? "the name has no address" : std::strerror(failure)),
       failure == ECONNREFUSED);
}

void Connection::on_connect_result() {
  poll_->watch(0);
  if (const int failure = connect_result(fd_.get()); failure != 0) return try_next_endpoint(failure);
  set_state(State::kGreeting);
  owner_.on_stream(*this);
}

// ------------------------------------------------------------ the hello

void Connection::greet(wire::Handshake handshake) {
  handshake_.emplace(std::move(handshake));
  last_step_ = loop_.now();
  if (!poll_) poll_ = Poll::make(loop_, fd_.get(), [this](int events) { on_ready(events); });
  if (!poll_) return fail(base::error(MV_ESYSTEM, "can't watch the connection to {}", address_));
  continue_greeting();
}

void Connection::continue_greeting() {
  auto& output = handshake_->output();
  if (!output.empty()) {
    outbox_.push_bytes(output);
    output.clear();
    flush();
  }
  if (handshake_->state() == wire::Handshake::State::kDone) return owner_.on_greeted(*this);
  if (handshake_->state() == wire::Handshake::State::kFailed) return fail_greeting();
  if (handshake_->state() == wire::Handshake::State::kTls && tls_ == nullptr) return owner_.on_deciding(*this);
  watch();
}

void Connection::encrypt(std::unique_ptr<TlsStream> stream) {
  tls_ = std::move(stream);
  take_tls_step();
}

/// Sends what TLS's handshake puts out, and continues the hello when it is complete.
void Connection::take_tls_step() {
  const bool complete = tls_->state() == TlsStream::State::kOpen;
  flush();
  if (tls_->state() == TlsStream::State::kFailed) return fail_tls();
  if (!complete) return watch();
  last_step_ = loop_.now();
  const TlsStream::Binding& binding = tls_->binding();
  const std::string_view channel(reinterpret_cast<const char*>(binding.data()), binding.size());
  handshake_->encrypted(handshake_->tls() == wire::Tls::kMutual ? channel : "");
  if (handshake_->undecided()) return owner_.on_deciding(*this);
  watch();
}

/// Passes input to TLS's handshake. True once it is complete.
bool Connection::read_tls_hello() {
  while (state_ == State::kGreeting && tls_->state() == TlsStream::State::kGreeting) {
    const std::span<std::byte> room = tls_->room();
    const ssize_t got = receive_plain(room, {});
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      hello_ended(got);
      return false;
    }
    if (refused_in_place_of_tls(room.first(static_cast<size_t>(got)))) return false;
    tls_->arrived(static_cast<size_t>(got));
    take_tls_step();
  }
  return state_ == State::kGreeting;
}

/// The peer may have no TLS although its settings allow it, and refuse in the form of the hello.
bool Connection::refused_in_place_of_tls(std::span<const std::byte> arrived) {
  constexpr std::byte kAlert{21}, kHandshake{22};  // the first byte of each of TLS's records
  if (arrived.front() == kAlert || arrived.front() == kHandshake || tls_arrived_) {
    tls_arrived_ = true;
    return false;
  }
  handshake_->feed(arrived.first(std::min(arrived.size(), handshake_->wants())));
  if (handshake_->state() == wire::Handshake::State::kFailed) fail_greeting();
  return true;
}

void Connection::fail_tls() {
  const bool by_key = handshake_->tls() == wire::Tls::kPsk;
  handshake_->not_encrypted();
  const base::Status proof = handshake_->why(address_);
  const std::string reason = tls_->why().text();
  set_state(State::kClosing);
  finish_writing();
  owner_.on_failed(*this, by_key ? base::error(MV_EAUTH, "{} ({})", proof.text(), reason) : base::error(MV_EAUTH, "{}: {}", address_, reason),
                   /*refused=*/false);
}

/// The connection has ended during the hello: read() returned `got`.
void Connection::hello_ended(ssize_t got) {
  if (got == 0 && (write_error_ == 0 || write_error_ == EPIPE))
    return fail(base::error(MV_EUNREACHABLE, "{} closed the connection during the hello", address_));
  const bool by_tls = got < 0 && errno == EPROTO && tls_ != nullptr;
  fail(base::error(by_tls ? MV_EAUTH : MV_EUNREACHABLE, "the connection to {} broke during the hello: {}", address_, why_broken(got)));
}

void Connection::read_hello() {
  if (tls_ != nullptr && !read_tls_hello()) return;
  while (state_ == State::kGreeting && handshake_->wants() > 0) {
    std::array<std::byte, 256> buffer;
    const ssize_t got = receive(std::span(buffer).first(std::min(buffer.size(), handshake_->wants())), {});
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return hello_ended(got);
    const wire::Handshake::State before = handshake_->state();
    handshake_->feed(std::span(buffer).first(static_cast<size_t>(got)));
    if (handshake_->state() != before) last_step_ = loop_.now();
    if (handshake_->state() == wire::Handshake::State::kTls) return continue_greeting();  // after the rest of the output
    if (handshake_->undecided()) return owner_.on_deciding(*this);
    if (handshake_->wants() == 0 || !handshake_->output().empty()) continue_greeting();
  }
}

void Connection::fail_greeting() {
  const base::Status why = handshake_->why(address_);
  // A close with unread bytes would reset the connection, and the refusal be lost. The owner's deadline ends the wait.
  set_state(State::kClosing);
  finish_writing();
  owner_.on_failed(*this, why, /*refused=*/false);
}

void Connection::fail(const base::Status& why, bool refused) {
  kill();
  owner_.on_failed(*this, why, refused);
}

// ------------------------------------------------------------ open

void Connection::open(base::LinkEvents& events, base::Peer peer) {
  set_state(State::kOpen);
  receiver_.emplace(events, peer);
  watch();
}

bool Connection::send(const base::Frame& frame) {
  const bool was_empty = outbox_.empty();
  if (state_ == State::kOpen && write_error_ == 0) outbox_.push(frame);
  return was_empty;
}

void Connection::flush() {
  if (tls_ == nullptr) {
    write_plain();
  } else {
    // What was queued before TLS began goes out as it is. TLS cannot be complete before it has arrived.
    if (tls_->state() == TlsStream::State::kGreeting) write_plain();
    write_sealed();
  }
  if (state_ == State::kClosing) finish_writing();
  watch();
}

void Connection::write_plain() {
  size_t budget = kWriteBudget;
  while (!outbox_.empty() && !full_ && write_error_ == 0 && fd_) {
    if (budget == 0) {  // continue in the next turn: the socket is writable
      full_ = true;
      break;
    }
    std::array<iovec, kPieces> pieces;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = outbox_.gather(pieces.data(), pieces.size());
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      size_t offered = 0;
      for (size_t i = 0; i < message.msg_iovlen; ++i) offered += pieces[i].iov_len;
      full_ = static_cast<size_t>(sent) < offered;
      outbox_.written(static_cast<size_t>(sent));
      budget -= std::min(budget, static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      full_ = true;
    } else if (errno != EINTR) {
      write_failed(errno);
    }
  }
}

void Connection::write_failed(int error) {
  write_error_ = error;  // reported after reading the data that arrived before
  outbox_.clear();
  shutdown(fd_.get(), SHUT_RDWR);  // if the kernel was out of memory, nothing else would end the connection
}

void Connection::write_sealed() {
  size_t budget = kWriteBudget;
  while (!full_ && write_error_ == 0 && fd_) {
    if (tls_->output().empty()) seal();
    const std::span<const std::byte> output = tls_->output();
    if (output.empty()) return;
    if (budget == 0) {  // as in write_plain()
      full_ = true;
      return;
    }
    iovec piece{const_cast<std::byte*>(output.data()), output.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      full_ = static_cast<size_t>(sent) < output.size();
      tls_->sent(static_cast<size_t>(sent));
      budget -= std::min(budget, static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      full_ = true;
    } else if (errno != EINTR) {
      write_failed(errno);
    }
  }
}

/// Encrypts the first bytes of the queue, as many as TLS has room for.
void Connection::seal() {
  if (tls_->state() != TlsStream::State::kOpen || outbox_.empty()) return;
  std::array<iovec, kPieces> pieces;
  const size_t count = outbox_.gather(pieces.data(), pieces.size());
  size_t sealed = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t done = tls_->seal({static_cast<const std::byte*>(pieces[i].iov_base), pieces[i].iov_len});
    sealed += done;
    if (done < pieces[i].iov_len) break;
  }
  outbox_.written(sealed);
  if (tls_->state() == TlsStream::State::kFailed) write_failed(EIO);
}

void Connection::say_goodbye() {
  if (state_ != State::kOpen) return kill();
  receiver_->stop();
  const auto record = wire::goodbye();
  outbox_.push_bytes(record);
  set_state(State::kClosing);
  flush();
}

void Connection::finish_writing() {
  const bool all_written = outbox_.empty() && (tls_ == nullptr || tls_->output().empty());
  if (!half_closed_ && (all_written || write_error_ != 0) && fd_) {
    half_closed_ = true;
    shutdown(fd_.get(), SHUT_WR);
  }
  watch();
}

void Connection::cut() {
  if (state_ == State::kOpen) shutdown(fd_.get(), SHUT_RDWR);
}

void Connection::kill() {
  if (state_ != State::kDead) set_state(State::kDead);
  if (receiver_) receiver_->stop();
  outbox_.clear();
  if (poll_) poll_->watch(0);
  // The Poll and the descriptor live until the owner frees this object, because this may run inside the Poll's
  // callback. shutdown() ends the connection now.
  if (fd_) shutdown(fd_.get(), SHUT_RDWR);
}

void Connection::end(ConnectionEvents::End how, const base::Status& why) {
  kill();
  owner_.on_ended(*this, how, why);
}

// ------------------------------------------------------------ the socket

void Connection::watch() {
  if (!poll_ || state_ == State::kDead || state_ == State::kConnecting) return;
  int events = full_ ? UV_WRITABLE : 0;
  const bool in_tls = tls_ != nullptr && tls_->state() == TlsStream::State::kGreeting;
  const bool undecided = state_ == State::kGreeting && handshake_ && handshake_->undecided() && !in_tls;
  if (!undecided) events |= UV_READABLE;
  poll_->watch(events);
}

void Connection::on_ready(int events) {
  if (state_ == State::kConnecting) return on_connect_result();
  if ((events & UV_WRITABLE) != 0 && full_) {
    full_ = false;
    flush();
  }
  if ((events & UV_READABLE) == 0) return;
  switch (state_) {
    case State::kGreeting:
      read_hello();
      if (tls_ == nullptr || state_ != State::kOpen) break;
      read_frames();  // which may have arrived together with the end of the hello, and be in the stream's memory
      break;
    case State::kOpen:
      read_frames();
      break;
    case State::kClosing:
      drain();
      break;
    case State::kConnecting:
    case State::kDead:
      break;
  }
  watch();
}

ssize_t Connection::receive(std::span<std::byte> first, std::span<std::byte> second) {
  return tls_ == nullptr ? receive_plain(first, second) : receive_sealed(first);
}

/// At most one record. Like recv(); EPROTO: the stream's why() has the reason.
ssize_t Connection::receive_sealed(std::span<std::byte> to) {
  while (true) {
    if (const size_t got = tls_->open(to); got > 0) return static_cast<ssize_t>(got);
    if (tls_->state() == TlsStream::State::kEnded) return 0;
    if (tls_->state() == TlsStream::State::kFailed) {
      errno = EPROTO;
      return -1;
    }
    if (std::exchange(drained_socket_, false)) {
      errno = EAGAIN;
      return -1;
    }
    const std::span<std::byte> room = tls_->room();
    const ssize_t got = receive_plain(room, {});
    if (got <= 0) return got;
    drained_socket_ = static_cast<size_t>(got) < room.size();
    tls_->arrived(static_cast<size_t>(got));
  }
}

std::string Connection::why_broken(ssize_t got) const {
  if (got < 0 && errno == EPROTO && tls_ != nullptr) return tls_->why().text();
  if (got == 0 && (write_error_ == 0 || write_error_ == EPIPE)) return "its process ended, or the network broke";
  return std::strerror(write_error_ != 0 ? write_error_ : errno);
}

ssize_t Connection::receive_plain(std::span<std::byte> first, std::span<std::byte> second) {
  std::array<iovec, kMessageParts> parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = second.empty() ? 1 : 2;
  for (;;) {
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (got >= 0 || errno != EINTR) return got;
  }
}

bool Connection::read() {
  if (state_ != State::kOpen || !read_frames()) return false;
  watch();
  return true;
}

/// Reads at most the budget of one turn. True if anything has arrived.
bool Connection::read_frames() {
  using End = ConnectionEvents::End;
  bool any = false;
  for (size_t budget = kReadBudget; state_ == State::kOpen;) {
    if (budget == 0) {
      if (tls_ == nullptr) return any;
      drained_socket_ = true;  // only what is in the stream's memory, for which the poll would not call again
    }
    const Receiver::Room room = receiver_->room();
    const ssize_t got = receive(room.first, room.second);
    if (got <= 0) {
      if (got < 0 && errno == EAGAIN) return any;
      end(End::kBroken, base::error(MV_EPEERLOST, "the connection to {} broke: {}", address_, why_broken(got)));
      return true;
    }
    if (!std::exchange(any, true)) owner_.on_received(*this);
    const base::Status status = receiver_->received(static_cast<size_t>(got));
    if (state_ != State::kOpen) break;  // closed by a callback
    if (!status.ok()) {
      end(End::kGarbage, base::error(status.code(), "{}: {}", address_, status.text()));
    } else if (receiver_->goodbye()) {
      end(End::kGoodbye, base::error(MV_EPEERLOST, "{} closed the connection", address_));
    } else if (tls_ == nullptr && static_cast<size_t>(got) < room.bytes()) {
      break;
    }
    budget -= std::min(budget, static_cast<size_t>(got));
  }
  return any;
}

/// Discards input until the peer's end of stream, so that a reset cannot destroy our last message.
void Connection::drain() {
  static thread_local std::array<std::byte, 64 << 10> scratch;
  for (int i = 0; i < 16; ++i) {
    const ssize_t got = receive_plain(scratch, {});
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) drained_ += static_cast<size_t>(got);
    if (got <= 0 || drained_ > kDrainLimit) return end(ConnectionEvents::End::kClosed, {});
  }
}

}  // namespace mv::transport
