#include "server_signals.hpp"

#include <polyverso/polyverso.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <system_error>

#include <fmt/core.h>

namespace mv::tools {
namespace {

sigset_t both() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

int signals_as_descriptor() {
  const sigset_t set = both();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

int checked(int descriptor) {
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "no descriptor for signals");
  return descriptor;
}

/// Ends the process as if it did not take the signal.
[[noreturn]] void end_by(int number) {
  signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  _exit(128 + number);  // the number 1 of a container, on which it has no effect
}

}  // namespace

ServerSignals::ServerSignals(std::chrono::milliseconds grace)
    : grace_(grace), signals_(checked(signals_as_descriptor())), end_(checked(eventfd(0, EFD_CLOEXEC))), taker_([this] { take(); }) {}

ServerSignals::~ServerSignals() {
  eventfd_write(end_, 1);
  taker_.join();
  if (drainer_.joinable()) drainer_.join();
  close(signals_);
  close(end_);
}

void ServerSignals::take() {
  bool drains = false;
  for (;;) {
    std::array<pollfd, 2> wanted{pollfd{signals_, POLLIN, 0}, pollfd{end_, POLLIN, 0}};
    if (poll(wanted.data(), wanted.size(), -1) < 0) continue;
    if (wanted[1].revents != 0) return;
    signalfd_siginfo taken;
    if (read(signals_, &taken, sizeof taken) != sizeof taken) continue;
    const int number = static_cast<int>(taken.ssi_signo);
    if (number != SIGTERM || drains || !serves_ || grace_.count() == 0) end_by(number);
    drains = true;
    drainer_ = std::thread([this] { drain(); });
  }
}

void ServerSignals::drain() {
  const mv_status status = mv_cluster_drain(0, grace_.count());
  // The cluster has ended meanwhile, so mv_shutdown() has returned.
  if (status == MV_OK || status == MV_ESTATE) return;
  fmt::print(stderr, "polyverso server: SIGTERM: ends without handing its tables over: {}\n", mv_last_error());
  end_by(SIGTERM);
}

}  // namespace mv::tools
