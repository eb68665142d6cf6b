#pragma once
// The entry point of the module that contains cpp-httplib, see http.hpp.

#include "transport/http/http.hpp"

namespace mv::transport {

/// The type of the module's function kHttpModuleEntry: listens, and sets `started` to the server or to the error.
/// Module and library must be of one build.
using StartHttp = void (*)(const std::string& host, int port, HttpHandler handler, base::Result<std::unique_ptr<HttpServer>>& started);
inline constexpr const char* kHttpModuleEntry = "polyverso_start_http";
inline constexpr const char* kHttpModuleFile = "libpolyverso-http.so";

}  // namespace mv::transport
