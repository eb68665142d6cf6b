#pragma once
// The check of an operation's shape, which another rank describes to draining ranks.

#include "base/result.hpp"
#include "engine/collective/operation.hpp"

namespace mv::collective {

/// A shape is untrusted, because it comes from another rank, and callers reduce by it. MV_EPROTOCOL; the message does
/// not name the rank.
base::Status check_shape(const Shape& shape);

}  // namespace mv::collective
