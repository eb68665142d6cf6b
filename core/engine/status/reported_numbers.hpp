#pragma once
// ReportedNumbers: what the program itself reports for the cluster's status, such as its loss.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::status {

struct ReportedNumber {
  std::string name;
  double value = 0;    ///< the latest; may be NaN or infinite
  uint64_t count = 0;  ///< how often it was reported
  base::Nanos age{0};  ///< of the latest
};

/// The latest number of each name. Any thread.
class ReportedNumbers {
 public:
  /// Names of one process. A program that puts its step into a name gets an error instead of a leak.
  static constexpr size_t kMostNames = 64;

  base::Status note(std::string_view name, double value, base::Nanos now) {
    const std::lock_guard lock(mutex_);
    auto found = numbers_.find(name);
    if (found == numbers_.end()) {
      if (numbers_.size() >= kMostNames) return base::error(MV_EINVAL, "\"{}\" is one too many: a process reports numbers under at most {} names", name, kMostNames);
      found = numbers_.emplace(name, Latest{}).first;
    }
    found->second = {value, found->second.count + 1, now};
    return {};
  }

  /// By name.
  std::vector<ReportedNumber> latest(base::Nanos now) const {
    const std::lock_guard lock(mutex_);
    std::vector<ReportedNumber> all;
    all.reserve(numbers_.size());
    for (const auto& [name, latest] : numbers_) all.push_back({name, latest.value, latest.count, now - latest.at});
    return all;
  }

 private:
  struct Latest {
    double value = 0;
    uint64_t count = 0;
    base::Nanos at{0};
  };
  mutable std::mutex mutex_;
  std::map<std::string, Latest, std::less<>> numbers_;
};

}  // namespace mv::status
