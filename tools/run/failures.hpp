#pragma once
// Which of a run's failures caused the others.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "run/child.hpp"

namespace mv::tools {

/// The processes that failed of their own accord, in the order in which the launcher heard of it.
class Failures {
 public:
  void add(const Child& child) { children_.push_back(&child); }
  /// Those from now on have nothing to do with the first ones.
  void settle() { at_once_ = children_.size(); }

  bool empty() const { return children_.empty(); }
  size_t size() const { return children_.size(); }

  /// The failures that no other one explains, the cause of the run's end first; not empty if there are any failures. Complete
  /// once the output of all processes has ended.
  std::vector<const Child*> unexplained() const;

 private:
  std::vector<const Child*> children_;
  std::optional<size_t> at_once_;  ///< so many may have failed because of each other; unset: all
};

/// "worker 1 (pid 123, rank 1) exited with 3; then worker 0 exited with 4, worker 2 was killed by SIGABRT, and 7 more"
std::string describe(const std::vector<const Child*>& failed);

}  // namespace mv::tools
