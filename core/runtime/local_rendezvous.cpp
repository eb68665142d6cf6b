#include "runtime/local_rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "base/log.hpp"
#include "transport/unix_socket.hpp"

namespace mv::runtime {

namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr base::Nanos kAskAgain = std::chrono::milliseconds(20);
constexpr std::string_view kGreeting = "polyverso 1\n";

std::string socket_name(const std::string& name) { return fmt::format("polyverso.{}.{}", geteuid(), name); }

base::Status interrupted() { return base::Status(MV_EINTR, "a signal interrupted the wait for rank 0: call again"); }

/// Waits until `fd` is readable, for at most `span`; with -1, waits for `span`. False after a signal.
bool pause_for(int fd, base::Nanos span) {
  pollfd readable{fd, POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
  return poll(&readable, 1, static_cast<int>(ms)) >= 0 || errno != EINTR;
}

/// What the other side sends before it closes. nullopt if that takes too long or is cut off; MV_EINTR.
base::Result<std::optional<std::string>> read_all(int fd) {
  constexpr size_t kLongest = 64 << 10;
  std::string text;
  const auto until = SteadyClock::now() + std::chrono::seconds(2);
  while (SteadyClock::now() < until && text.size() < kLongest) {
    char part[1024];
    const ssize_t got = recv(fd, part, sizeof part, MSG_DONTWAIT);
    if (got == 0) return std::optional(text);
    if (got > 0) {
      text.append(part, static_cast<size_t>(got));
    } else if (errno == EAGAIN) {
      if (!pause_for(fd, kAskAgain)) return interrupted();
    } else if (errno != EINTR) {
      break;
    }
  }
  return std::optional<std::string>();
}

}  // namespace

std::string write_meeting(const Meeting& meeting) { return fmt::format("{}{}\n{}\n", kGreeting, meeting.address, meeting.secret); }

std::optional<Meeting> parse_meeting(std::string_view text) {
  if (!text.starts_with(kGreeting)) return std::nullopt;
  text.remove_prefix(kGreeting.size());
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || text.size() < end + 2 || !text.ends_with('\n')) return std::nullopt;
  return Meeting{std::string(text.substr(0, end)), std::string(text.substr(end + 1, text.size() - end - 2))};
}

base::Result<std::unique_ptr<Publication>> Publication::make(transport::Loop& loop, const std::string& name,
                                                             const Meeting& meeting) {
  auto fd = transport::listen_abstract(socket_name(name));
  if (!fd.ok()) {
    return base::error(
        fd.status().code(),
        "rank 0 of this job already exists, or can't publish its address: {}; set POLYVERSO_MASTER=host:port instead",
        fd.status().text());
  }
  std::unique_ptr<Publication> publication(new Publication(write_meeting(meeting)));
  publication->listener_ = std::make_unique<transport::Listener>(
      loop, std::move(fd).value(), [p = publication.get()](transport::Fd asker) { p->answer(std::move(asker)); });
  if (!publication->listener_->ok())
    return base::error(MV_ESYSTEM, "can't watch the socket by which rank 0 publishes its address");
  return publication;
}

void Publication::answer(transport::Fd asker) const {
  if (!transport::is_same_user(asker.get()))
    return base::log_warn("another user's process asked for rank 0's address: not answered");
  // The text fits into a new socket's buffer; a process that receives less asks again.
  if (::send(asker.get(), text_.data(), text_.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text_.size()))
    base::log_debug("a process that asked for rank 0's address did not read the answer");
}

base::Result<Meeting> ask_rank_0(const std::string& name, base::Nanos patience, SteadyClock::time_point begun) {
  while (true) {
    const auto fd = transport::connect_abstract(socket_name(name));
    if (!fd.ok() && fd.status().code() != MV_EUNREACHABLE) return fd.status();
    if (fd.ok() && !transport::is_same_user(fd.value().get()))
      return base::error(MV_EAUTH,
                         "a process of another user answers instead of rank 0 under the name \"{}\"; set "
                         "POLYVERSO_MASTER=host:port instead",
                         socket_name(name));
    if (fd.ok()) {
      const auto text = read_all(fd.value().get());
      if (!text.ok()) return text.status();
      if (const auto meeting = text.value() ? parse_meeting(*text.value()) : std::nullopt) return *meeting;
    }
    if (SteadyClock::now() - begun >= patience) {
      return base::error(MV_ETIMEOUT,
                         "rank 0 did not publish its address on this machine within {:.3g} s, under the job's name "
                         "({}). Has it called mv_init()?",
                         base::seconds(patience), name);
    }
    if (!pause_for(-1, kAskAgain)) return interrupted();
  }
}

}  // namespace mv::runtime
