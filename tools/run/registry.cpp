#include "run/registry.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

#include <fmt/core.h>

namespace mv::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGreeting = "polyverso run 3";
constexpr size_t kMostBytes = 64 << 10;

std::string folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat info;
  const bool usable = runtime != nullptr && runtime[0] == '/' && stat(runtime, &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == geteuid();
  return usable ? fmt::format("{}/polyverso", runtime) : fmt::format("/tmp/polyverso-{}", geteuid());
}

/// Nothing if the folder exists and belongs to this user alone; otherwise the problem. In /tmp, another user may have made it first.
std::string check_folder(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return fmt::format("{}: {}", path, std::strerror(errno));
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
    return fmt::format("{} is not a private folder of this user", path);
  return "";
}

/// One line's worth.
std::string flat(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part;
  while (text.size() < kMostBytes) {
    const ssize_t got = read(fd, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<size_t>(got));
  }
  return text;
}

std::optional<RunEntry> parse(std::string_view text, pid_t pid) {
  std::array<std::string_view, 6> lines;
  for (std::string_view& line : lines) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  if (lines[0] != kGreeting) return std::nullopt;
  const auto number = [](std::string_view digits) {
    int value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  RunEntry run{pid, std::string(lines[1]), std::string(lines[2]), std::string(lines[3]), number(lines[4]), number(lines[5]), {}};
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (const size_t equals = line.find('='); equals != std::string_view::npos) run.tls[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return run;
}

/// The entry of a run that lives. What a dead one left is removed.
std::optional<RunEntry> read_entry(const fs::path& path) {
  const std::string name = path.filename().string();
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  const bool left_behind = flock(fd, LOCK_SH | LOCK_NB) == 0;
  if (left_behind) unlink(path.c_str());
  const std::string text = left_behind ? "" : read_all(fd);
  close(fd);
  return left_behind ? std::nullopt : parse(text, pid);
}

}  // namespace

Registration::Registration(const RunEntry& entry) {
  const std::string home = folder();
  mkdir(home.c_str(), 0700);
  failure_ = check_folder(home);
  if (!failure_.empty()) return;
  path_ = fmt::format("{}/{}", home, entry.pid);
  const std::string unfinished = fmt::format("{}/.{}", home, entry.pid);  // locked and whole before anybody sees it
  unlink(unfinished.c_str());
  fd_ = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", kGreeting, entry.address, entry.secret, flat(entry.command), entry.nodes, entry.replicas);
  for (const auto& [key, value] : entry.tls) text += fmt::format("{}={}\n", key, flat(value));
  if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0 && write_all(fd_, text) &&
      rename(unfinished.c_str(), path_.c_str()) == 0)
    return;
  failure_ = fmt::format("{}: {}", path_, std::strerror(errno));
  unlink(unfinished.c_str());
  path_.clear();
}

Registration::~Registration() {
  if (!path_.empty()) unlink(path_.c_str());
  if (fd_ >= 0) close(fd_);
}

std::vector<RunEntry> running() {
  const std::string home = folder();
  struct stat info;
  if (lstat(home.c_str(), &info) != 0 && errno == ENOENT) return {};
  if (const std::string wrong = check_folder(home); !wrong.empty()) throw std::runtime_error(wrong);
  std::vector<RunEntry> entries;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(home, ignored))
    if (auto entry = read_entry(file.path())) entries.push_back(std::move(*entry));
  std::sort(entries.begin(), entries.end(), [](const RunEntry& a, const RunEntry& b) { return a.pid < b.pid; });
  return entries;
}

}  // namespace mv::tools
