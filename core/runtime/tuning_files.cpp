#include "runtime/tuning_files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/mix.hpp"
#include "base/processors.hpp"
#include "base/version.hpp"

namespace mv::runtime {

namespace {

constexpr std::string_view kFirstLine = "polyverso tuning 1";
constexpr int64_t kMostAge = 30 * 24 * 3600;
constexpr size_t kMostBytes = size_t{64} << 10;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, named;
  while (std::getline(file, line) && named.empty())
    for (const std::string_view key : {"model name", "CPU part"})  // x86-64, AArch64
      if (const size_t colon = line.find(": "); line.starts_with(key) && colon != std::string::npos) named = line.substr(colon + 2);
  return named.empty() ? "unknown" : named;
}

/// All that decides how long operations take, on one line.
std::string this_machine() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return fmt::format("version {}; host {}; processor {}; caches {} {} {}; processors {}", base::version_text(), host, processor_name(),
                     sysconf(_SC_LEVEL1_DCACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE), base::allowed_processors());
}

/// A relative path in XDG_CACHE_HOME must be ignored, as its specification says.
std::string user_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fmt::format("{}/polyverso", cache);
  const char* const home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? fmt::format("{}/.cache/polyverso", home) : "";
}

void make_folders(const std::string& folder) {
  for (size_t at = folder.find('/', 1); at != std::string::npos; at = folder.find('/', at + 1)) mkdir(folder.substr(0, at).c_str(), 0700);
  mkdir(folder.c_str(), 0700);
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0;
  for (const char each : text) hash = base::mix(hash ^ static_cast<unsigned char>(each));
  return hash;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // cut off
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// Not by a stream: a folder, a pipe or a device of this name must not block.
std::string read_small(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return {};
  std::string text(kMostBytes, '\0');
  struct stat about {};
  size_t size = 0;
  while (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && size < text.size()) {
    const ssize_t got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(file);
  text.resize(size);
  return text;
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

/// A file of its own for each writer, and then its new name.
bool replace(const std::string& path, std::string_view text) {
  std::string beside = path + ".XXXXXX";
  const int file = mkostemp(beside.data(), O_CLOEXEC);
  if (file < 0) return false;
  const bool written = write_all(file, text);
  const bool closed = close(file) == 0;
  if (written && closed && rename(beside.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  unlink(beside.c_str());
  errno = error;
  return false;
}

}  // namespace

TuningFile::TuningFile(const std::string& subject) : machine_(this_machine()), folder_(user_folder()) {
  if (!folder_.empty()) path_ = fmt::format("{}/tuning-{}-{:016x}", folder_, subject, hash_of(machine_));
}

/// The last line has the number of entries: a file that was cut off counts as none.
TuningFile::Content TuningFile::load() const {
  const std::string text = path_.empty() ? std::string() : read_small(path_);
  const auto lines = lines_of(text);
  if (lines.size() < 4 || lines[0] != kFirstLine || lines[1] != machine_ || !lines[2].starts_with("made ")) return {};
  Content content;
  const std::string_view made = lines[2].substr(5);
  const auto [end, failure] = std::from_chars(made.data(), made.data() + made.size(), content.made);
  const int64_t age = std::time(nullptr) - content.made;
  if (failure != std::errc() || end != made.data() + made.size() || age < 0 || age > kMostAge) return {};
  if (lines.back() != fmt::format("end {}", lines.size() - 4)) return {};
  for (const std::string_view line : std::vector(lines.begin() + 3, lines.end() - 1)) {
    const size_t tab = line.find('\t');
    if (tab != std::string_view::npos) content.entries.emplace(line.substr(0, tab), line.substr(tab + 1));
  }
  return content;
}

TuningEntries TuningFile::read() const { return load().entries; }

void TuningFile::add(const TuningEntries& entries) const {
  if (path_.empty() || entries.empty()) return;
  Content content = load();
  if (content.made == 0) content.made = std::time(nullptr);
  for (const auto& [name, value] : entries) content.entries.insert_or_assign(name, value);
  std::string text = fmt::format("{}\n{}\nmade {}\n", kFirstLine, machine_, content.made);
  for (const auto& [name, value] : content.entries) text += fmt::format("{}\t{}\n", name, value);
  text += fmt::format("end {}\n", content.entries.size());
  if (text.size() > kMostBytes) return;
  make_folders(folder_);
  if (!replace(path_, text)) base::log_debug("{} can't be written: {}", path_, std::strerror(errno));
}

namespace {

constexpr const char* kCosts = "costs";

}  // namespace

std::string kept_costs() {
  std::string line;
  for (const auto& [transport, cost] : TuningFile(kCosts).read()) line += (line.empty() ? "" : " ") + cost;
  return line;
}

void keep_costs(const TuningEntries& costs) { TuningFile(kCosts).add(costs); }

}  // namespace mv::runtime
