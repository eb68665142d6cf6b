#include "run/failures.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace mv::tools {

std::vector<const Child*> Failures::unexplained() const {
  std::vector<const Child*> all = children_;
  std::stable_partition(all.begin(), all.begin() + static_cast<ptrdiff_t>(at_once_.value_or(all.size())),
                        [](const Child* child) { return child->ending()->signal != 0; });
  // Those that report a lost peer have failed because of another process, and may still have ended before it: Python, for one,
  // takes a while to end.
  const auto is_victim = [](const Child* child) { return child->names_lost_peer(); };
  if (std::ranges::all_of(all, is_victim)) {
    all.resize(std::min<size_t>(all.size(), 1));
  } else {
    std::erase_if(all, is_victim);
  }
  return all;
}

std::string describe(const std::vector<const Child*>& failed) {
  constexpr size_t kMost = 4;
  std::string text = fmt::format("{} {}", failed.front()->who(), describe(*failed.front()->ending()));
  for (size_t i = 1; i < failed.size() && i <= kMost; ++i)
    text += fmt::format("{} {} {}", i == 1 ? "; then" : ",", failed[i]->process().name, describe(*failed[i]->ending()));
  return failed.size() <= kMost + 1 ? text : fmt::format("{}, and {} more", text, failed.size() - 1 - kMost);
}

}  // namespace mv::tools
