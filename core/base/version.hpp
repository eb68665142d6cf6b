#pragma once
// The library's version number as text. mv_version_text() belongs to capi/, which the core must not use.

#include <fmt/core.h>
#include <polyverso/polyverso.h>

#include <string>

namespace mv::base {

inline std::string version_text() { return fmt::format("{}.{}.{}", MV_VERSION_MAJOR, MV_VERSION_MINOR, MV_VERSION_PATCH); }

}  // namespace mv::base
