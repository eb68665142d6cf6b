#pragma once
// Paths: how values go between several devices, decided by measuring.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "device/device.hpp"

namespace mv::device {

enum class Path {
  kDirect,   ///< between one device and each of the others
  kByParts,  ///< between all, each of which handles a part: see Sums and Broadcasts
};

/// The paths of one device's sums, or of its broadcasts, for each set of devices that have values, and each size class. The first operations of a
/// class try both paths, each one twice, because the first use of a connection may be slow; then the faster one stays. Nobody waits for a trial: its
/// time is read when a later operation begins. Which path is faster depends on the connections: with a switch between all devices parts win, and where
/// copies pass through the host they don't. The environment variable POLYVERSO_DEVICE_PATHS=direct or =parts decides instead. Any thread.
class Paths {
 public:
  /// Carries out work(Path) -> Result<Path>, which begins after earlier work of all these streams, is complete on the first one, and returns the path
  /// that it has taken.
  /// @param streams  one of each device, that of this device first
  /// @param bytes    of all arrays that may go by parts
  base::Status run(std::span<const Stream* const> streams, size_t bytes, const std::function<base::Result<Path>(Path)>& work);
  /// What the trials have found; nothing until they have ended.
  /// @param numbers  of the devices, one bit for each
  std::optional<Path> found(uint64_t numbers, size_t bytes);

  /// Smaller arrays always go directly: to launch the work of all devices would take longer.
  static constexpr size_t kLeastBytes = size_t{256} << 10;
  /// Calls visit(i, first, count) for the slices of `count` elements, of which the last ones may be missing. They begin at elements that are as aligned
  /// as whole arrays.
  template <typename Visit>
  static void for_each_slice(size_t slices, size_t count, const Visit& visit) {
    constexpr size_t kUnit = 256;
    const size_t each = (count / slices + kUnit - 1) / kUnit * kUnit;
    for (size_t i = 0, first = 0; i < slices && first < count; ++i, first += each) visit(i, first, i + 1 < slices ? std::min(each, count - first) : count - first);
  }

 private:
  static constexpr int kTrials = 4;
  struct Trial {
    Path path;
    Event from, to;
  };
  struct Class {
    int trials = 0;  ///< begun
    std::optional<Trial> under_way = {};
    double best[2] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};  ///< milliseconds, by paths
    Path found() const { return best[0] <= best[1] ? Path::kDirect : Path::kByParts; }
  };
  Class& class_of(uint64_t numbers, size_t bytes);
  static void settle(Class& known);
  static Path choose(Class& known, bool* is_trial);
  static std::optional<Trial> begin_trial(std::span<const Stream* const> streams, Path path);

  std::mutex mutex_;  ///< guards classes_
  std::map<std::pair<uint64_t, int>, Class> classes_;
};

}  // namespace mv::device
