#pragma once
// What a store's type stands for.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mv::kvstore {

struct Type {
  std::string name;   ///< as it was given, in small letters
  bool dist = false;  ///< all workers of a cluster; else this process's devices
  bool sync = false;  ///< dist: in rounds
  bool sliced = false;  ///< dist: values travel in slices, so that keys of a higher priority overtake large ones
  uint64_t spread_from = 0;  ///< elements of a key that is spread over all servers; 0: as many as are large, see layout.hpp
};

/// As MXNET_KVSTORE_BIGARRAY_BOUND says: a whole number, at least 1; 0 for empty text. MV_EINVAL.
base::Result<uint64_t> parse_spread_from(std::string_view text);

/// Matched whole, in letters of any size. MV_EINVAL with the types that there are.
/// @param van  as DMLC_PS_VAN_TYPE says: "p3" makes p3 of the types with rounds
base::Result<Type> parse_type(std::string_view text, std::string_view van);

}  // namespace mv::kvstore
