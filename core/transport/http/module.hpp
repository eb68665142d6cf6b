#pragma once
// The entry points of the module that contains cpp-httplib, see http.hpp and client.hpp. Module and library must be of one build.

#include "transport/http/client.hpp"
#include "transport/http/http.hpp"

namespace mv::transport {

/// The type of the module's function kHttpModuleEntry: listens, and sets `started` to the server or to the error.
/// Module and library must be of one build.
/// @param tls  null: not encrypted
using StartHttp = void (*)(const std::string& host, int port, HttpHandler handler, std::shared_ptr<TlsContext> tls,
                           base::Result<std::unique_ptr<HttpServer>>& started);
inline constexpr const char* kHttpModuleEntry = "polyverso_start_http";
/// The type of the module's function kHttpClientEntry.
using MakeHttpClient = void (*)(const HttpTarget& target, base::Result<std::unique_ptr<HttpClient>>& made);
inline constexpr const char* kHttpClientEntry = "polyverso_http_client";
inline constexpr const char* kHttpModuleFile = "libpolyverso-http.so";

}  // namespace mv::transport
