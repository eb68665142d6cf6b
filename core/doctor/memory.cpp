#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <sstream>

#include "base/shared_memory.hpp"
#include "base/system.hpp"
#include "doctor/machine.hpp"
#include "transport/shm/note.hpp"
#include "transport/unix_socket.hpp"

namespace mv::doctor {

namespace {

constexpr size_t kTrialBytes = 1 << 16;
constexpr uint64_t kLittleMemory = 256ull << 20;

/// Passes `memory` through a new unix socket, as between two processes. Returns the receiving side's mapping of it.
base::Result<std::shared_ptr<base::SharedMemory>> pass(const base::SharedMemory& memory) {
  static std::atomic<unsigned> trials{0};
  const std::string name = fmt::format("polyverso-doctor-{}-{}", getpid(), trials++);
  const auto listener = transport::listen_abstract(name);
  if (!listener.ok()) return listener.status();
  const auto here = transport::connect_abstract(name);
  if (!here.ok()) return here.status();
  const transport::Fd there(accept4(listener.value().get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!there) return base::error(MV_ESYSTEM, "the connection can't be accepted: {}", std::strerror(errno));
  if (!transport::is_same_user(there.get()))
    return base::error(MV_ESYSTEM, "the kernel does not tell the peer's user (SO_PEERCRED)");
  const std::array<int, 1> descriptors{memory.fd()};
  if (!transport::send_note(here.value().get(), {.kind = transport::Note::Type::kOffer}, descriptors))
    return base::error(MV_ESYSTEM, "a descriptor can't be sent: {}", std::strerror(errno));
  transport::Note note;
  std::array<transport::Fd, transport::kNoteFds> received;
  transport::NoteReader reader;
  if (reader.read(there.get(), &note, &received) != transport::NoteReader::Read::kNote || !received[0])
    return base::error(MV_ESYSTEM, "the sent descriptor has not arrived");
  return base::SharedMemory::adopt(received[0].release(), kTrialBytes);
}

void try_shared_memory(const runtime::Settings& settings, Findings& findings) {
  const bool wanted = settings.transport == "auto";
  const auto fails = [&](const char* subject, const std::string& why, const std::string& todo) {
    if (wanted)
      findings.problem(
          subject, fmt::format("{}: processes on this machine use TCP, at a fraction of the speed", why), todo);
    else
      findings.note(subject, why, fmt::format("nothing to do while transport={}; else: {}", settings.transport, todo));
  };
  const auto memory = base::SharedMemory::make("polyverso-doctor", kTrialBytes);
  if (!memory.ok())
    return fails("shared memory", memory.status().text(),
                 "allow memfd_create and its seals in the container's seccomp profile (Linux 5.1 or newer)");
  findings.ok("shared memory", "memfd with seals works; it takes no space in /dev/shm");
  std::memset(memory.value()->data(), 42, kTrialBytes);
  const auto passed = pass(*memory.value());
  const char* kTodo = "allow abstract unix sockets and SCM_RIGHTS in the container's profile";
  if (!passed.ok()) return fails("passing descriptors", passed.status().text(), kTodo);
  if (std::memcmp(passed.value()->data(), memory.value()->data(), kTrialBytes) != 0)
    return fails("passing descriptors", "the received memory is not the sent memory", kTodo);
  findings.ok("passing descriptors", "memory sent through an abstract unix socket is the same memory at the other end");
}

void examine_huge_pages(Findings& findings) {
  const auto chosen = [](const char* path) -> std::string {  // "always [madvise] never"
    const std::string text = base::read_text(path).value_or("");
    const size_t open = text.find('['), close = text.find(']');
    return open == std::string::npos || close == std::string::npos ? "" : text.substr(open + 1, close - open - 1);
  };
  const std::string own = chosen("/sys/kernel/mm/transparent_hugepage/enabled");
  if (own.empty()) {
    findings.ok("huge pages", "not supported by the kernel");
  } else if (own == "never") {
    findings.note("huge pages", "switched off: large sparse and key-value tables are read more slowly",
                  "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  } else {
    findings.ok("huge pages", fmt::format("{}; large tables use them", own));
  }
}

}  // namespace

Findings examine_memory(const runtime::Settings& settings) {
  Findings findings("memory");
  const auto available = base::available_memory(), granted = base::granted_memory();
  const uint64_t least = std::min(available.value_or(UINT64_MAX), granted.value_or(UINT64_MAX));
  std::string text = available ? base::as_bytes(*available) + " available" : "the kernel does not tell how much is available";
  if (granted) text += fmt::format(", {} left in this control group", base::as_bytes(*granted));
  if (least < kLittleMemory)
    findings.note("memory", std::move(text),
                  "end other processes, or give the container more memory: servers hold their tables in memory");
  else
    findings.ok("memory", std::move(text));
  try_shared_memory(settings, findings);
  examine_huge_pages(findings);
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
    findings.ok("locked memory", locked.rlim_cur == RLIM_INFINITY
                                     ? "no limit (none is needed)"
                                     : fmt::format("limit {} KiB (none is needed)", locked.rlim_cur >> 10));
  return findings;
}

}  // namespace mv::doctor
