#pragma once
// A small HTTP client for services that a node depends on, such as etcd. Table traffic never passes through it.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "transport/http/http.hpp"

namespace mv::transport {

/// A server, and the files (PEM) for https.
struct HttpTarget {
  std::string host;
  int port = 0;
  bool tls = false;
  std::string ca{}, cert{}, key{};  ///< the authorities, by default those of the system; the client's certificate and key, if the server wants them
};

/// A connection to one server, which is kept open between requests. Its calls block: they belong on a thread that blocks all signals, because
/// OpenSSL writes to sockets without MSG_NOSIGNAL. One thread at a time, except for cancel().
class HttpClient {
 public:
  struct Request {
    std::string path, body;
    std::string authorization{};  ///< the header of this name; empty: none
    base::Nanos patience{};       ///< for the whole answer; a connection may take a second of it
  };
  virtual ~HttpClient() = default;
  /// Posts JSON. An answer with any HTTP status is a result. MV_EUNREACHABLE: no connection, nothing was sent. MV_EPEERLOST: the connection broke, or
  /// no answer came in time; the request may have been carried out.
  virtual base::Result<HttpAnswer> post(const Request& request) = 0;
  /// Posts JSON, and passes the parts of the answer to `take` as they arrive. Returns MV_OK when `take` returns false,
  /// when the server ends the answer, or when the patience has passed.
  virtual base::Result<HttpAnswer> stream(const Request& request, const std::function<bool(std::string_view)>& take) = 0;
  /// Soon ends the current call and all later ones. Any thread.
  virtual void cancel() noexcept = 0;
};

/// A client, which connects with its first request. Loads the module of transport/http/http.hpp. MV_ENOSYS if it is missing, MV_EINVAL for files that
/// can't be read.
base::Result<std::unique_ptr<HttpClient>> make_http_client(const HttpTarget& target);

}  // namespace mv::transport
