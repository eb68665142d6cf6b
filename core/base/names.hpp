#pragma once
// Hash maps and sets of many names. A look-up touches one cache line, and the name itself if it is found.

#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace mv::base {

/// The map does not own the names. The next insertion or erasure invalidates iterators and references to values.
template <typename Value>
using NameMap = tsl::robin_map<std::string_view, Value, std::hash<std::string_view>, std::equal_to<std::string_view>,
                               std::allocator<std::pair<std::string_view, Value>>, /*StoreHash=*/true>;
using NameSet = tsl::robin_set<std::string_view, std::hash<std::string_view>, std::equal_to<std::string_view>, std::allocator<std::string_view>,
                               /*StoreHash=*/true>;

/// Reserves room for `more` insertions at once.
void expect_names(auto& names, size_t more) {
  const size_t all = names.size() + more;
  if (static_cast<float>(all) > static_cast<float>(names.bucket_count()) * names.max_load_factor()) names.reserve(std::max(all, 2 * names.size()));
}

}  // namespace mv::base
