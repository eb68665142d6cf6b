#pragma once
// A small HTTP server for monitoring a node, on a thread of its own. Table traffic never passes through it.

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "transport/tls/tls.hpp"

namespace mv::transport {

/// The answer to a GET.
struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string text;
};
/// Answers a path, on the server's thread. The handler also returns 404 for unknown paths.
using HttpHandler = std::function<HttpAnswer(const std::string& path)>;

class HttpServer {
 public:
  virtual ~HttpServer() = default;  ///< like stop()
  /// The address at which it listens: "127.0.0.1:43211", or "https://127.0.0.1:43211".
  virtual const std::string& address() const = 0;
  /// Ends the thread after its current request, at most a second later. Idempotent.
  virtual void stop() = 0;
  /// In a forked child: closes the descriptors. Async-signal-safe. Afterwards the child must leak the object.
  virtual void abandon_after_fork() noexcept = 0;
};

/// Starts a server, which listens at once. cpp-httplib, with OpenSSL, is in a separate module next to the library
/// (transport/http/module.cpp). The first call loads it, so processes without a server pay nothing.
/// @param address "port", on loopback, or "host:port"; port 0: any free one
/// @param tls  with kMutual it speaks HTTPS, and only with clients that have a certificate of these authorities
/// MV_EINVAL for another form of address or files that can't be used, MV_EADDRINUSE, MV_ENOSYS if a module is missing,
/// MV_ESYSTEM.
base::Result<std::unique_ptr<HttpServer>> serve_http(const std::string& address, HttpHandler handler, const TlsSettings& tls);

}  // namespace mv::transport
