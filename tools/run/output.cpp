#include "run/output.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace mv::tools {
namespace {

/// In the message of every error of this status, in all languages.
constexpr std::string_view kLostPeer = "MV_EPEERLOST";
constexpr std::string_view kEraseLine = "\x1b[K";
constexpr std::array kColors = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) && term != nullptr && std::strcmp(term, "dumb") != 0;
}

bool wants_color(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(fd) && (no_color == nullptr || *no_color == '\0');
}

}  // namespace

Output::Output(bool color)
    : out_{STDOUT_FILENO, is_terminal(STDOUT_FILENO), color && wants_color(STDOUT_FILENO)},
      err_{STDERR_FILENO, is_terminal(STDERR_FILENO), color && wants_color(STDERR_FILENO)} {}

std::string Output::prefix(Channel channel, std::string_view label, int color) const {
  const Sink& sink = channel == Channel::kOut ? out_ : err_;
  if (!sink.color || color < 0) return fmt::format("[{}] ", label);
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kColors[static_cast<size_t>(color) % kColors.size()], label);
}

void Output::append(Channel channel, std::string_view prefix, std::string_view text, char end) {
  if (progress_shown_ && sink(channel).terminal) pending_ += kEraseLine;
  pending_ += prefix;
  pending_ += text;
  pending_ += end;
  if (sink(channel).terminal) progress_shown_ = end == '\r';
}

void Output::feed(Source& source, std::string_view bytes) {
  const Channel channel = source.channel;
  const auto line = [&](std::string_view text) { append(channel, source.prefix, text, '\n'); };
  source.splitter.feed(bytes, [&](std::string_view text, LineSplitter::End end) {
    source.names_lost_peer = source.names_lost_peer || text.find(kLostPeer) != std::string_view::npos;
    end == LineSplitter::End::kReturn ? append(channel, source.prefix, text, '\r') : source.traces.pass(text, line);
  });
  const std::string_view progress = source.splitter.progress();
  if (sink(channel).terminal && !progress.empty()) append(channel, source.prefix, progress, '\r');
  flush(channel);
}

void Output::finish(Source& source) {
  const auto line = [&](std::string_view text) { append(source.channel, source.prefix, text, '\n'); };
  source.splitter.finish([&](std::string_view text, LineSplitter::End) { source.traces.pass(text, line); });
  source.traces.finish(line);
  flush(source.channel);
}

void Output::say(std::string_view text) {
  append(Channel::kErr, "polyverso run: ", text, '\n');
  flush(Channel::kErr);
}

void Output::flush(Channel channel) {
  // Blocks while nobody reads: the processes' pipes fill up behind it, and they wait as they would without a launcher.
  std::string_view rest = pending_;
  Sink& to = sink(channel);
  while (!rest.empty() && !to.broken) {
    const ssize_t written = write(to.fd, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{to.fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno == EPIPE) {
      to.broken = true;
    } else if (errno != EINTR) {
      const int error = errno;
      pending_.clear();
      return lose(channel, error);
    }
  }
  pending_.clear();
}

void Output::lose(Channel channel, int error) {
  if (std::exchange(has_lost_, true)) return;
  say(fmt::format("can't write to standard {}: {}; the run continues, but its output is incomplete", channel == Channel::kOut ? "output" : "error",
                  std::strerror(error)));
}

}  // namespace mv::tools
