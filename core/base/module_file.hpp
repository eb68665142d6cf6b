#pragma once
// Modules: shared objects beside the library that bring a large dependency along, and are loaded when they are needed.

#include <string>

#include "base/result.hpp"

namespace mv::base {

/// The function `entry` of the module `file`, from the folder of this library, or else from the loader's search path.
/// The module stays loaded. MV_ENOSYS if it is missing; the message begins with `what`.
Result<void*> load_from_module(const char* file, const char* entry, const char* what);

}  // namespace mv::base
