#include "device/paths.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/log.hpp"

namespace mv::device {

namespace {

/// Nothing: it is measured.
std::optional<Path> given_path() {
  const char* const given = std::getenv("POLYVERSO_DEVICE_PATHS");
  const std::string_view path = given != nullptr ? given : "auto";
  if (path == "direct") return Path::kDirect;
  if (path == "parts") return Path::kByParts;
  static std::atomic<bool> is_told{false};
  if (path != "auto" && path != "" && !is_told.exchange(true))
    base::log_warn("POLYVERSO_DEVICE_PATHS is \"{}\": auto, direct and parts are known; auto is used", path);
  return {};
}

}  // namespace

Paths::Class& Paths::class_of(uint64_t numbers, size_t bytes) { return classes_[{numbers, std::bit_width(bytes)}]; }

/// Takes the time of a trial that has ended. Requires the lock.
void Paths::settle(Class& known) {
  if (!known.under_way) return;
  const std::optional<double> millis = known.under_way->to.millis_if_done(known.under_way->from);
  if (!millis) return;
  double& best = known.best[static_cast<int>(known.under_way->path)];
  best = std::min(best, *millis);
  known.under_way.reset();
  if (known.trials == kTrials) base::log_debug("between several devices: {} ms directly, {} ms by parts", known.best[0], known.best[1]);
}

Path Paths::choose(Class& known, bool* is_trial) {
  settle(known);
  if (known.under_way) return Path::kDirect;
  *is_trial = known.trials < kTrials;
  return *is_trial ? static_cast<Path>(known.trials++ % 2) : known.found();
}

std::optional<Path> Paths::found(uint64_t numbers, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Class& known = class_of(numbers, bytes);
  settle(known);
  return known.trials < kTrials || known.under_way ? std::nullopt : std::optional(known.found());
}

base::Status Paths::run(std::span<const Stream* const> streams, size_t bytes, const std::function<base::Result<Path>(Path)>& work) {
  uint64_t numbers = 0;
  for (const Stream* const stream : streams) numbers |= uint64_t{1} << stream->device().number();
  bool is_trial = false;
  const std::optional<Path> given = given_path();
  Path wanted = given.value_or(Path::kDirect);
  if (!given) {
    const std::unique_lock lock(mutex_, std::try_to_lock);  // in a forked child it may be held for ever
    if (lock.owns_lock()) wanted = choose(class_of(numbers, bytes), &is_trial);
  }
  std::optional<Trial> trial = is_trial ? begin_trial(streams, wanted) : std::nullopt;
  const auto taken = work(wanted);
  if (!taken.ok()) return taken.status();
  if (!trial || taken.value() != wanted || !trial->to.record(*streams.front()).ok()) return {};
  const std::lock_guard lock(mutex_);
  class_of(numbers, bytes).under_way = std::move(trial);
  return {};
}

/// Without the events for it there is no trial. Its time begins when earlier work of all streams is done.
std::optional<Paths::Trial> Paths::begin_trial(std::span<const Stream* const> streams, Path path) {
  const Stream& stream = *streams.front();
  auto from = Event::make(stream.device()), to = Event::make(stream.device());
  if (!from.ok() || !to.ok()) return {};
  for (const Stream* const other : streams.subspan(1))
    if (!other->order(stream).ok()) return {};
  if (!from.value().record(stream).ok()) return {};
  return Trial{path, std::move(from).value(), std::move(to).value()};
}

}  // namespace mv::device
