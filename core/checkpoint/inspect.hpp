#pragma once
// What a checkpoint holds, for people and programs.

#include <string>

#include "base/result.hpp"

namespace mv::checkpoint {

/// A checkpoint, a directory of them, or one of their files as JSON; everything is read and compared with its
/// checksums. Damage is told in the text. MV_ENOTFOUND if there is nothing at `path`.
base::Result<std::string> inspect(const std::string& path);

}  // namespace mv::checkpoint
