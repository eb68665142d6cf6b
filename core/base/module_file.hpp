#pragma once
// Modules: shared objects beside the library that bring a large dependency along, and are loaded when they are needed.

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace mv::base {

/// The function `entry` of the module `file`, from the folder of this library, or else from the loader's search path.
/// The module stays loaded. MV_ENOSYS if it is missing; the message begins with `what`.
Result<void*> load_from_module(const char* file, const char* entry, const char* what);

/// The same for a plug-in, whose file may be given: from `path` or, if that is empty, as a module is found. `kind`: "devices"; for messages.
Result<void*> load_from_plugin(const std::string& path, const char* file, const char* entry, const char* kind);

/// Whether the file is in the folder of this library.
bool is_beside(const char* file);

/// What a plug-in's entry has returned for this interface: its table of functions, which begins with `interface` and `size`. MV_EVERSION if it is
/// of another one. `name`: the plug-in's file.
template <typename Table>
Result<const Table*> check_plugin(const Table* table, uint32_t interface, const std::string& name) {
  if (table != nullptr && table->interface == interface && table->size == sizeof(Table)) return table;
  return error(MV_EVERSION, "the plug-in {} is of another version than the library, which needs interface {}: install both from one build", name, interface);
}

}  // namespace mv::base
