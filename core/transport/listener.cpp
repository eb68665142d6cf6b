#include "transport/listener.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"

namespace mv::transport {

namespace {
constexpr int kAcceptsPerTurn = 64;
constexpr base::Nanos kPause = std::chrono::milliseconds(50);
}

Listener::Listener(Loop& loop, Fd fd, std::function<void(Fd)> accepted)
    : fd_(std::move(fd)), accepted_(std::move(accepted)), again_(loop, [this] { resume(); }) {
  poll_ = Poll::make(loop, fd_.get(), [this](int) { on_ready(); });
  if (poll_) poll_->watch(UV_READABLE);
}

void Listener::resume() {
  again_.stop();
  poll_->watch(UV_READABLE);
}

void Listener::on_ready() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Fd accepted(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted) {
      has_warned_ = false;
      accepted_(std::move(accepted));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!std::exchange(has_warned_, true)) base::log_warn("can't accept connections: {}; trying again until it works", std::strerror(errno));
      poll_->watch(0);  // it stays readable: don't spin
      again_.start(kPause, kPause);
    }
    return;
  }
}

}  // namespace mv::transport
