#pragma once
// Paths: how values go between several devices, decided by measuring.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "device/device.hpp"

namespace mv::device {

enum class Path {
  kDirect,   ///< between one device and each of the others
  kByParts,  ///< between all, each of which handles a part: see Sums and Broadcasts
};

/// The paths of one device's sums, or of its broadcasts, for each set of devices that have values, and each size class. The first operations of a
/// class try both paths, each one twice, because the first use of a connection may be slow; then the faster one stays. Which is faster depends on
/// the connections: with a switch between all devices parts win, and where copies pass through the host they don't. The environment variable
/// POLYVERSO_DEVICE_PATHS=direct or =parts decides instead. Any thread.
class Paths {
 public:
  struct Choice {
    Path path;
    bool is_trial;  ///< tell() must follow
  };
  /// @param numbers  of the devices, one bit for each
  /// @param bytes    of all arrays that may go by parts
  /// Carries out work(Path), which puts work on the first of these streams and leaves it complete there. A trial waits for all of them first.
  base::Status run(std::span<const Stream* const> streams, uint64_t numbers, size_t bytes, const std::function<base::Status(Path)>& work);
  Choice choose(uint64_t numbers, size_t bytes);
  void tell(uint64_t numbers, size_t bytes, Path path, double millis);

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
  struct Class {
    int trials = 0;
    double best[2] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  };
  static std::pair<uint64_t, int> key_of(uint64_t numbers, size_t bytes);

  std::mutex mutex_;  ///< guards classes_
  std::map<std::pair<uint64_t, int>, Class> classes_;
};

}  // namespace mv::device
