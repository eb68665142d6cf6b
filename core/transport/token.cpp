#include "transport/token.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/log.hpp"
#include "transport/unix_socket.hpp"

namespace mv::transport {

namespace {

std::string token_socket(base::Peer listener, const std::string& address) { return fmt::format("polyverso-token-{:016x}-{}", listener, address); }

base::Status belongs_to_another_user(const std::string& address) {
  return base::error(MV_EAUTH, "this process has no secret, and {} belongs to another user: set POLYVERSO_SECRET (or `secret`) to the same value on both",
                     address);
}

/// Connects to the token's socket. Sets `*busy` if the listener's backlog is full for now.
base::Result<Fd> connect_to_desk(const std::string& name, const std::string& address, bool* busy) {
  auto fd = connect_abstract(name, busy);
  if (fd.ok() && !is_same_user(fd.value().get())) return belongs_to_another_user(address);
  if (fd.ok() || *busy) return fd;
  return base::error(MV_EAUTH,
                     "this process has no secret, and {} is not proved to be on the same machine ({}): set POLYVERSO_SECRET (or `secret`) to "
                     "the same value on both",
                     address, fd.status().text());
}

enum class Got { kMore, kAll, kEnd };

/// Reads the part of the token that has arrived.
Got read_token(int fd, std::string& token) {
  std::array<char, kTokenBytes> bytes;
  while (token.size() < kTokenBytes) {
    const ssize_t got = recv(fd, bytes.data(), kTokenBytes - token.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Got::kMore;
    if (got <= 0) return Got::kEnd;
    token.append(bytes.data(), static_cast<size_t>(got));
  }
  return Got::kAll;
}

}  // namespace

// ------------------------------------------------------------ the listener's side

base::Result<std::unique_ptr<TokenDesk>> TokenDesk::make(Loop& loop, base::Peer self, const std::string& address, std::string token) {
  const auto failed = [&](const base::Status& why) {
    return base::error(MV_ESYSTEM, "without a secret, processes of this user could not prove themselves to {}: {}; set POLYVERSO_SECRET", address,
                       why.text());
  };
  auto fd = listen_abstract(token_socket(self, address));
  if (!fd.ok()) return failed(fd.status());
  std::unique_ptr<TokenDesk> desk(new TokenDesk(std::move(token)));
  desk->listener_ = std::make_unique<Listener>(loop, std::move(fd).value(), [d = desk.get()](Fd asker) { d->answer(asker); });
  if (!desk->listener_->ok()) return failed(base::Status(MV_ESYSTEM, "the socket can't be watched"));
  return desk;
}

/// Answers at once or not at all, so that strangers cost nothing.
void TokenDesk::answer(const Fd& asker) const {
  if (!is_same_user(asker.get())) return base::log_debug("ignored a process of another user that has no secret");
  static_cast<void>(::send(asker.get(), token_.data(), token_.size(), MSG_DONTWAIT | MSG_NOSIGNAL));  // a new socket has room
}

// ------------------------------------------------------------ the dialer's side

TokenQuery::TokenQuery(Loop& loop, base::Peer listener, const std::string& address, Told told)
    : loop_(loop), address_(address), name_(token_socket(listener, address)), told_(std::move(told)) {}

void TokenQuery::ask() {
  if (poll_ != nullptr || told_ == nullptr) return;
  bool busy = false;
  auto fd = connect_to_desk(name_, address_, &busy);
  if (busy) return;
  if (!fd.ok()) return tell(fd.status());
  fd_ = std::move(fd).value();
  poll_ = Poll::make(loop_, fd_.get(), [this](int) { read(); });
  if (!poll_) return tell(base::error(MV_ESYSTEM, "can't watch the socket by which {} proves itself", address_));
  poll_->watch(UV_READABLE);
}

void TokenQuery::read() {
  const Got got = read_token(fd_.get(), token_);
  if (got == Got::kMore) return;
  poll_->watch(0);
  tell(got == Got::kAll ? base::Result<std::string>(std::move(token_)) : belongs_to_another_user(address_));
}

void TokenQuery::tell(base::Result<std::string> token) {
  if (const Told told = std::exchange(told_, nullptr)) told(std::move(token));
}

base::Result<std::string> ask_for_token(base::Peer listener, const std::string& address, base::Nanos patience) {
  using Clock = std::chrono::steady_clock;
  constexpr int kAgainMs = 10;
  const std::string name = token_socket(listener, address);
  std::string token;
  Fd fd;
  for (const auto until = Clock::now() + patience; Clock::now() < until;) {
    bool busy = false;
    if (!fd) {
      auto connected = connect_to_desk(name, address, &busy);
      if (!connected.ok() && !busy) return connected.status();
      if (connected.ok()) fd = std::move(connected).value();
    }
    if (const Got got = fd ? read_token(fd.get(), token) : Got::kMore; got == Got::kAll) return token;
    else if (got == Got::kEnd) return belongs_to_another_user(address);
    pollfd readable{fd.get(), POLLIN, 0};
    poll(&readable, 1, kAgainMs);
  }
  return base::error(MV_EUNREACHABLE, "{} did not prove in time that it belongs to this user", address);
}

}  // namespace mv::transport
