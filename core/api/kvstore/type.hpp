#pragma once
// Type: the properties of a store's type.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace mv::kvstore {

struct Type {
  std::string name;   ///< as given, in lower case
  bool dist = false;  ///< all workers of a cluster; otherwise this process's devices
  bool sync = false;  ///< dist: updated in rounds
  bool on_devices = false;  ///< not dist: keys whose first value is on a device stay there, and are updated there
  bool sliced = false;  ///< dist: values are sent in slices, so that keys of higher priority overtake large ones
  uint64_t spread_from = 0;  ///< elements from which a key is spread over all servers; 0: by bytes, see placement.hpp
};

/// Parses MXNET_KVSTORE_BIGARRAY_BOUND: a whole number, at least 1; 0 for empty text. MV_EINVAL.
base::Result<uint64_t> parse_spread_from(std::string_view text);

/// Matches the whole name, ignoring case. MV_EINVAL lists the types.
/// @param van  the value of DMLC_PS_VAN_TYPE: "p3" makes types with rounds sliced
base::Result<Type> parse_type(std::string_view text, std::string_view van);

}  // namespace mv::kvstore
