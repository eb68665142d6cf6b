#pragma once
// A description of a checkpoint as JSON, for people and programs.

#include <string>

#include "base/result.hpp"

namespace mv::checkpoint {

/// Describes a checkpoint, a directory of checkpoints, or one of their files as JSON. Reads everything and compares it
/// with its checksums; the text lists the damage. MV_ENOTFOUND if there is nothing at `path`.
base::Result<std::string> inspect(const std::string& path);

}  // namespace mv::checkpoint
