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
  bool sliced = false;  ///< dist: values travel in slices, so that keys of a higher priority overtake large ones
};

/// Matched whole, in letters of any size. MV_EINVAL with the types that there are.
/// @param van  as DMLC_PS_VAN_TYPE says: "p3" makes p3 of the types with rounds
base::Result<Type> parse_type(std::string_view text, std::string_view van);

}  // namespace mv::kvstore
