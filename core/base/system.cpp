#include "base/system.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace mv::base {

namespace {

/// The path of this process's group in the tree of `controller`, from the lines "number:controllers:path" of
/// /proc/self/cgroup.
std::string group_path(const std::string& controller) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_it =
        controller.empty() ? controllers == ",," : controllers.find("," + controller + ",") != std::string::npos;
    if (is_it) return line.substr(second + 1);
  }
  return "/";
}

/// Reads `file` of the group at `path` below `root`, or of the nearest group above that has it.
std::optional<std::string> read_upwards(const std::string& root, std::string path, const std::string& file) {
  while (true) {
    if (auto text = read_text(fmt::format("{}{}{}{}", root, path, path.ends_with('/') ? "" : "/", file))) return text;
    if (path.empty() || path == "/") return std::nullopt;
    const size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "" : path.substr(0, slash);
  }
}

}  // namespace

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (all.ends_with('\n')) all.pop_back();
  return all;
}

std::optional<uint64_t> leading_number(const std::string& text) {
  uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::string> read_control_group(const std::string& controller, const std::string& file) {
  if (auto text = read_upwards("/sys/fs/cgroup", group_path(""), file)) return text;
  return read_upwards("/sys/fs/cgroup/" + controller, group_path(controller), file);
}

// The line "MemAvailable:  123 kB" of /proc/meminfo.
std::optional<uint64_t> available_memory() {
  std::istringstream lines(read_text("/proc/meminfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    const size_t digit = line.find_first_of("0123456789");
    const auto kibibytes = digit == std::string::npos ? std::nullopt : leading_number(line.substr(digit));
    if (kibibytes) return *kibibytes << 10;
  }
  return std::nullopt;
}

std::optional<uint64_t> granted_memory() {
  const bool second = read_control_group("memory", "memory.max").has_value();
  const auto limit = read_control_group("memory", second ? "memory.max" : "memory.limit_in_bytes");
  const auto used = read_control_group("memory", second ? "memory.current" : "memory.usage_in_bytes");
  const auto most = limit ? leading_number(*limit) : std::nullopt;  // "max" is not a number
  if (!most || !used || *most > 1ull << 60) return std::nullopt;    // version 1 writes "no limit" as a huge number
  return *most - std::min(*most, leading_number(*used).value_or(0));
}

std::string as_bytes(uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1024 ? fmt::format("{:.0f} MiB", mebibytes) : fmt::format("{:.1f} GiB", mebibytes / 1024);
}

}  // namespace mv::base
