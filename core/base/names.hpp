#pragma once
// Maps and sets of names, of which there may be very many: a look-up touches one line of memory, and the name if it is there.

#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace mv::base {

/// The names are somebody else's memory. References to values and iterators end with the next insertion or erasure.
template <typename Value>
using NameMap = tsl::robin_map<std::string_view, Value, std::hash<std::string_view>, std::equal_to<std::string_view>,
                               std::allocator<std::pair<std::string_view, Value>>, /*StoreHash=*/true>;
using NameSet = tsl::robin_set<std::string_view, std::hash<std::string_view>, std::equal_to<std::string_view>, std::allocator<std::string_view>,
                               /*StoreHash=*/true>;

/// Before several insertions: they do not grow it one by one.
void expect_names(auto& names, size_t more) {
  const size_t all = names.size() + more;
  if (static_cast<float>(all) > static_cast<float>(names.bucket_count()) * names.max_load_factor()) names.reserve(std::max(all, 2 * names.size()));
}

}  // namespace mv::base
