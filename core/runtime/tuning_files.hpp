#pragma once
// Measurements of this machine by groups, in the user's cache folder: $XDG_CACHE_HOME/polyverso, by default
// ~/.cache/polyverso. It is only a cache: a file that can't be read counts as missing, and one that can't be written is
// no error.

#include <cstddef>
#include <map>
#include <string>

namespace mv::runtime {

/// Texts by name. Names have no tabs, and neither has line ends.
using TuningEntries = std::map<std::string, std::string>;

/// The file of one subject, for example "shm-2". There is one for each host, processor, set of caches, number of
/// processors that this process may use, and version of the library. Any thread.
class TuningFile {
 public:
  explicit TuningFile(const std::string& subject);

  /// The entries; none if there is no valid file of the last 30 days. Files expire because machines change, and because
  /// measurements of one busy day must not slow down all later days.
  TuningEntries read() const;
  /// Adds or replaces entries. The new file replaces the old one atomically. If two processes write at the same time,
  /// the entries of one of them may be lost.
  void add(const TuningEntries& entries) const;
  /// Empty if there is no folder: neither XDG_CACHE_HOME nor HOME is set.
  const std::string& path() const { return path_; }

 private:
  struct Content {
    int64_t made = 0;  ///< seconds since 1970
    TuningEntries entries;
  };
  Content load() const;

  std::string machine_, folder_, path_;
};

/// The costs of messages (engine/collective/cost_text.hpp) that `polyverso doctor --tune` has measured on this machine;
/// empty if it has not.
std::string kept_costs();
/// Keeps costs by the name of their transport, for example "shm=4e-06,1.8e-10".
void keep_costs(const TuningEntries& costs);

}  // namespace mv::runtime
