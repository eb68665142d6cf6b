#pragma once
// Whether an operation that another rank describes to those that drain can be taken part in.

#include "base/result.hpp"
#include "engine/collective/operation.hpp"

namespace mv::collective {

/// Everything in a shape comes from another rank, and callers reduce by it. MV_EPROTOCOL, without the rank's name.
base::Status check_shape(const Shape& shape);

}  // namespace mv::collective
