#pragma once
// The one door of the module that has cpp-httplib in it, see http.hpp.

#include "transport/http/http.hpp"

namespace mv::transport {

/// The module's function kHttpModuleEntry: listens, and writes the server or why there is none. Both sides are of one build.
using StartHttp = void (*)(const std::string& host, int port, HttpHandler handler, base::Result<std::unique_ptr<HttpServer>>& started);
inline constexpr const char* kHttpModuleEntry = "polyverso_start_http";
inline constexpr const char* kHttpModuleFile = "libpolyverso-http.so";

}  // namespace mv::transport
