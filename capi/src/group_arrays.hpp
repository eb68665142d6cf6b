#pragma once
// Checks the callers' arrays of a group's operation.

#include <polyverso/polyverso.h>

#include <vector>

#include "base/result.hpp"
#include "engine/collective/operation.hpp"

namespace mv::capi {

/// MV_EINVAL for arrays without memory, or if a reserved field is set.
base::Result<std::vector<collective::Array>> read_arrays(const mv_array* arrays, uint64_t count);
/// MV_EINVAL for flags other than mv_group_flag.
base::Status check_group_flags(uint32_t flags);
/// The most arrays of one operation: far more than any model has.
inline constexpr uint64_t kMostArrays = 1 << 20;

}  // namespace mv::capi
