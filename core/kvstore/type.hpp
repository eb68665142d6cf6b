#pragma once
// What a store's type stands for.

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mv::kvstore {

struct Type {
  std::string name;   ///< as it was given, in small letters
  bool dist = false;  ///< all workers of a cluster; else this process's devices
  bool sync = false;  ///< dist: in rounds
};

/// Matched whole, in letters of any size. MV_EINVAL with the types that there are.
base::Result<Type> parse_type(std::string_view text);

}  // namespace mv::kvstore
