#include "run/exits.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/core.h>

namespace mv::tools {

Exits::Exits() : fd_(memfd_create("polyverso-exits", MFD_CLOEXEC)) { write("polyverso exits 1\n"); }

Exits::~Exits() {
  if (fd_ >= 0) close(fd_);
}

std::string Exits::path() const { return fd_ >= 0 ? fmt::format("/proc/{}/fd/{}", getpid(), fd_) : ""; }

void Exits::report(const Child& child) {
  const Ending& ending = *child.ending();
  const std::string how = ending.signal != 0 ? describe(ending) : fmt::format("exited with status {}", ending.status);
  write(fmt::format("{} (pid {}) {}\n", child.process().name, child.pid(), how));
}

void Exits::write(const std::string& text) {
  while (fd_ >= 0 && ::write(fd_, text.data(), text.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace mv::tools
