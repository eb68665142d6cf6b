#pragma once
// Callers' arrays of a group's operation.

#include <polyverso/polyverso.h>

#include <vector>

#include "base/result.hpp"
#include "engine/collective/operation.hpp"

namespace mv::capi {

/// MV_EINVAL where there are arrays, but no place that holds them, or where a reserved field is set.
base::Result<std::vector<collective::Array>> read_arrays(const mv_array* arrays, uint64_t count);
/// Flags as mv_group_flag has them.
base::Status check_group_flags(uint32_t flags);
/// How many arrays one operation may have: far more than any model does.
inline constexpr uint64_t kMostArrays = 1 << 20;

}  // namespace mv::capi
