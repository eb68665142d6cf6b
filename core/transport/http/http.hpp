#pragma once
// A small HTTP server for whoever watches a node, on a thread of its own. Nothing that tables do passes through here.

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"

namespace mv::transport {

/// What is answered to a GET.
struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string text;
};
/// By path, on the server's thread; 404 is the handler's to say.
using HttpHandler = std::function<HttpAnswer(const std::string& path)>;

class HttpServer {
 public:
  virtual ~HttpServer() = default;  ///< as stop()
  /// Where it listens, "127.0.0.1:43211".
  virtual const std::string& address() const = 0;
  /// Ends the thread, after the request that it is at, at most a second later. Idempotent.
  virtual void stop() = 0;
  /// In a forked child: closes the descriptors. Async-signal-safe; nothing but leaking the object may follow.
  virtual void abandon_after_fork() noexcept = 0;
};

/// Listens at once. cpp-httplib, and OpenSSL with it, is in a module of its own beside the library (transport/http/module.cpp), which is loaded by the
/// first call: who does not ask for this pays nothing.
/// @param address "port", which is on loopback, or "host:port"; port 0: any free one
/// MV_EINVAL for another address, MV_EADDRINUSE, MV_ENOSYS where the module is missing, MV_ESYSTEM.
base::Result<std::unique_ptr<HttpServer>> serve_http(const std::string& address, HttpHandler handler);

}  // namespace mv::transport
