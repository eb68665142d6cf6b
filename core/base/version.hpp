#pragma once
// What this library is called by its number; mv_version_text() is capi's, which the core does not see.

#include <fmt/core.h>
#include <polyverso/polyverso.h>

#include <string>

namespace mv::base {

inline std::string version_text() { return fmt::format("{}.{}.{}", MV_VERSION_MAJOR, MV_VERSION_MINOR, MV_VERSION_PATCH); }

}  // namespace mv::base
