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
  watch();
}

void Connection::read_hello() {
  while (state_ == State::kGreeting && handshake_->wants() > 0) {
    std::array<std::byte, 256> buffer;
    const ssize_t got = receive(std::span(buffer).first(std::min(buffer.size(), handshake_->wants())), {});
    if (got < 0 && errno == EAGAIN) return;
    if (got == 0 && (write_error_ == 0 || write_error_ == EPIPE))
      return fail(base::error(MV_EUNREACHABLE, "{} closed the connection during the hello", address_));
    if (got <= 0) {
      return fail(base::error(MV_EUNREACHABLE, "the connection to {} broke during the hello: {}", address_,
                              std::strerror(write_error_ != 0 ? write_error_ : errno)));
    }
    const wire::Handshake::State before = handshake_->state();
    handshake_->feed(std::span(buffer).first(static_cast<size_t>(got)));
    if (handshake_->state() != before) last_step_ = loop_.now();
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
    } else if (errno != EINTR) {  // reported after reading the data that arrived before
      write_error_ = errno;
      outbox_.clear();
      shutdown(fd_.get(), SHUT_RDWR);  // if the kernel was out of memory, nothing else would end the connection
    }
  }
  if (state_ == State::kClosing) finish_writing();
  watch();
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
  if (!half_closed_ && (outbox_.empty() || write_error_ != 0) && fd_) {
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
  const bool undecided = state_ == State::kGreeting && handshake_ && handshake_->undecided();
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
  std::array<iovec, kMessageParts> parts{iovec{first.data(), first.size()}, iovec{second.data(), second.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = second.empty() ? 1 : 2;
  for (;;) {
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    if (got >= 0 || errno != EINTR) return got;
  }
}

void Connection::read_frames() {
  using End = ConnectionEvents::End;
  for (size_t budget = kReadBudget; budget > 0 && state_ == State::kOpen;) {
    const Receiver::Room room = receiver_->room();
    const ssize_t got = receive(room.first, room.second);
    if (got <= 0) {
      if (got < 0 && errno == EAGAIN) return;
      const bool ended = got == 0 && (write_error_ == 0 || write_error_ == EPIPE);
      const char* reason = ended ? "its process ended, or the network broke" : std::strerror(got < 0 ? errno : write_error_);
      return end(End::kBroken, base::error(MV_EPEERLOST, "the connection to {} broke: {}", address_, reason));
    }
    const base::Status status = receiver_->received(static_cast<size_t>(got));
    if (state_ != State::kOpen) return;  // closed by a callback
    if (!status.ok()) return end(End::kGarbage, base::error(status.code(), "{}: {}", address_, status.text()));
    if (receiver_->goodbye())
      return end(End::kGoodbye, base::error(MV_EPEERLOST, "{} closed the connection", address_));
    if (static_cast<size_t>(got) < room.bytes()) return;
    budget -= std::min(budget, static_cast<size_t>(got));
  }
}

/// Discards input until the peer's end of stream, so that a reset cannot destroy our last message.
void Connection::drain() {
  static thread_local std::array<std::byte, 64 << 10> scratch;
  for (int i = 0; i < 16; ++i) {
    const ssize_t got = receive(scratch, {});
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) drained_ += static_cast<size_t>(got);
    if (got <= 0 || drained_ > kDrainLimit) return end(ConnectionEvents::End::kClosed, {});
  }
}

}  // namespace mv::transport
