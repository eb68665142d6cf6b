#include "base/module_file.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <string_view>

namespace mv::base {

namespace {

/// The path of a file in the folder of this library; "" if the folder is unknown.
std::string beside_library(const char* file) {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&load_from_module), &here) == 0 || here.dli_fname == nullptr) return "";
  const std::string_view library = here.dli_fname;
  const size_t slash = library.rfind('/');
  return slash != std::string_view::npos ? std::string(library.substr(0, slash + 1)) + file : "";
}

}  // namespace

bool is_beside(const char* file) {
  const std::string path = beside_library(file);
  return !path.empty() && access(path.c_str(), R_OK) == 0;
}

Result<void*> load_from_module(const char* file, const char* entry, const char* what) {
  const std::string beside = beside_library(file);
  void* module = beside.empty() ? nullptr : dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string why = module == nullptr && !beside.empty() ? dlerror() : "";
  if (module == nullptr) module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* last = dlerror();
    return error(MV_ENOSYS, "{}: the module {} can't be loaded; install it beside the library, or leave the setting out: {}", what, file,
                 !why.empty()      ? why.c_str()
                 : last != nullptr ? last
                                   : "unknown");
  }
  void* const found = dlsym(module, entry);  // the module stays loaded: it may have threads
  if (found == nullptr) return error(MV_ENOSYS, "{}: {} is not a module of this library", what, file);
  return found;
}

Result<void*> load_from_plugin(const std::string& path, const char* file, const char* entry, const char* kind) {
  if (path.empty()) return load_from_module(file, entry, kind);
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const why = module == nullptr ? dlerror() : nullptr;
  if (module == nullptr) return error(MV_ENOSYS, "{} can't be loaded: {}", path, why != nullptr ? why : "unknown");
  void* const found = dlsym(module, entry);  // the module stays loaded: it may have threads
  if (found == nullptr) return error(MV_ENOSYS, "{} is no plug-in for {}: it has no {}()", path, kind, entry);
  return found;
}

}  // namespace mv::base
