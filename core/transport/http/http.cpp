#include "transport/http/http.hpp"

#include <dlfcn.h>

#include <charconv>

#include "transport/http/module.hpp"

namespace mv::transport {

namespace {

/// Loads the module from the folder of this library, or else from the loader's search path.
base::Result<StartHttp> load_module() {
  Dl_info here{};
  std::string beside;
  if (dladdr(reinterpret_cast<const void*>(&serve_http), &here) != 0 && here.dli_fname != nullptr) {
    const std::string_view file = here.dli_fname;
    const size_t slash = file.rfind('/');
    if (slash != std::string_view::npos) beside = std::string(file.substr(0, slash + 1)) + kHttpModuleFile;
  }
  void* module = beside.empty() ? nullptr : dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string why = module == nullptr && !beside.empty() ? dlerror() : "";
  if (module == nullptr) module = dlopen(kHttpModuleFile, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* last = dlerror();
    return base::error(MV_ENOSYS, "metrics: the module {} can't be loaded; install it beside the library, or leave the setting out: {}", kHttpModuleFile,
                       !why.empty() ? why.c_str() : last != nullptr ? last : "unknown");
  }
  void* const start = dlsym(module, kHttpModuleEntry);  // the module stays loaded: it may have threads
  if (start == nullptr) return base::error(MV_ENOSYS, "metrics: {} is not a module of this library", kHttpModuleFile);
  return reinterpret_cast<StartHttp>(start);
}

/// Parses "port" or "host:port"; a host that contains colons is in brackets.
base::Status parse_address(std::string_view address, std::string& host, int& port) {
  const size_t colon = address.rfind(':');
  const std::string_view digits = colon == std::string_view::npos ? address : address.substr(colon + 1);
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || failure != std::errc() || end != digits.data() + digits.size() || port < 0 || port > 65535 || colon == 0)
    return base::error(MV_EINVAL, "metrics={}: expected \"port\" or \"host:port\"; port 0 selects a free one", address);
  host = colon == std::string_view::npos ? "127.0.0.1" : address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {};
}

}  // namespace

base::Result<std::unique_ptr<HttpServer>> serve_http(const std::string& address, HttpHandler handler) {
  std::string host;
  int port = 0;
  if (const base::Status wrong = parse_address(address, host, port); !wrong.ok()) return wrong;
  static const base::Result<StartHttp> kStart = load_module();
  if (!kStart.ok()) return kStart.status();
  base::Result<std::unique_ptr<HttpServer>> started = base::Status();
  kStart.value()(host, port, std::move(handler), started);
  return started;
}

}  // namespace mv::transport
