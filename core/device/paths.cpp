#include "device/paths.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/log.hpp"

namespace mv::device {

std::pair<uint64_t, int> Paths::key_of(uint64_t numbers, size_t bytes) { return {numbers, std::bit_width(bytes)}; }

namespace {

/// Nothing: it is measured.
std::optional<Path> given_path() {
  const char* const given = std::getenv("POLYVERSO_DEVICE_PATHS");
  const std::string_view path = given != nullptr ? given : "auto";
  if (path == "direct") return Path::kDirect;
  if (path == "parts") return Path::kByParts;
  if (path != "auto" && path != "") base::log_warn("POLYVERSO_DEVICE_PATHS is \"{}\": auto, direct and parts are known; auto is used", path);
  return {};
}

}  // namespace

Paths::Choice Paths::choose(uint64_t numbers, size_t bytes) {
  static const std::optional<Path> kGiven = given_path();
  if (kGiven) return {*kGiven, false};
  const std::lock_guard lock(mutex_);
  Class& known = classes_[key_of(numbers, bytes)];
  if (known.trials < kTrials) return {static_cast<Path>(known.trials++ % 2), true};
  return {known.best[0] <= known.best[1] ? Path::kDirect : Path::kByParts, false};
}

base::Status Paths::run(std::span<const Stream* const> streams, uint64_t numbers, size_t bytes, const std::function<base::Status(Path)>& work) {
  const Choice choice = choose(numbers, bytes);
  if (!choice.is_trial) return work(choice.path);
  const Stream& stream = *streams.front();
  const auto from = Event::make(stream.device()), to = Event::make(stream.device());
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  for (const Stream* const one : streams)
    if (auto status = one->wait(); !status.ok()) return status;
  if (auto status = from.value().record(stream); !status.ok()) return status;
  if (auto status = work(choice.path); !status.ok()) return status;
  if (auto status = to.value().record(stream); !status.ok()) return status;
  const auto millis = to.value().millis_since(from.value());
  if (!millis.ok()) return millis.status();
  tell(numbers, bytes, choice.path, millis.value());
  return {};
}

void Paths::tell(uint64_t numbers, size_t bytes, Path path, double millis) {
  const std::lock_guard lock(mutex_);
  Class& known = classes_[key_of(numbers, bytes)];
  double& best = known.best[static_cast<int>(path)];
  best = std::min(best, millis);
  if (known.trials == kTrials)
    base::log_debug("{} bytes between {} devices: {} ms directly, {} ms by parts", bytes, std::popcount(numbers), known.best[0], known.best[1]);
}

}  // namespace mv::device
