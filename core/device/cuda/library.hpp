#pragma once
// Functions of libraries that the plug-in loads when they are first needed.

#include <dlfcn.h>

namespace mv::device::cuda {

template <typename Function>
bool find(void* module, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(module, name));
  return function != nullptr;
}

}  // namespace mv::device::cuda
