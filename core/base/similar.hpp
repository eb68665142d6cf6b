#pragma once
// "did you mean ...": the known word that a mistyped one was probably meant to be.

#include <algorithm>
#include <cctype>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace mv::base {

/// Letters to insert, remove, replace or swap with their neighbour to turn `a` into `b`. Case doesn't count.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) { return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y)); };
  std::vector<size_t> older(b.size() + 1), old(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) old[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({old[j] + 1, now[j - 1] + 1, old[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) now[j] = std::min(now[j], older[j - 2] + 1);
    }
    std::swap(older, old);
    std::swap(old, now);
  }
  return old[b.size()];
}

/// The one of `known` that is nearest to `word`, or that alone begins with it; empty if none is near. The first of equals.
std::string_view similar(std::string_view word, const std::ranges::input_range auto& known) {
  constexpr size_t kLongest = 64;     // nothing known is longer; bounds the work for any input
  constexpr size_t kShortestBeginning = 3;
  if (word.empty() || word.size() > kLongest) return {};
  std::string_view nearest, longer;
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  size_t beginnings = 0;
  for (const std::string_view one : known) {
    const size_t distance = edit_distance(word, one);
    if (distance < best && distance < std::max(word.size(), one.size())) {
      best = distance;
      nearest = one;
    }
    if (word.size() < kShortestBeginning || !one.starts_with(word)) continue;
    ++beginnings;
    longer = one;
  }
  return nearest.empty() && beginnings == 1 ? longer : nearest;
}

/// `; did you mean "run"?` for the end of a message, or nothing. `lead` stands before the word, such as an option's dashes.
std::string did_you_mean(std::string_view word, const std::ranges::input_range auto& known, std::string_view lead = "") {
  const std::string_view meant = similar(word, known);
  return meant.empty() ? std::string() : "; did you mean \"" + std::string(lead) + std::string(meant) + "\"?";
}

}  // namespace mv::base
