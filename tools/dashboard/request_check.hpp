#pragma once
// Which HTTP requests the dashboard answers. A web page elsewhere, or a user without the printed link, gets nothing.

#include <string>
#include <string_view>

namespace mv::tools {

/// What the decision depends on. A header that was not sent is empty.
struct CheckedRequest {
  std::string method, host, origin, cookie, token;
  bool several_hosts = false;  ///< more than one Host header
};

struct Verdict {
  int status = 200;             ///< 200, 403 or 405
  std::string text;             ///< unless 200: the reason, for the user
  bool set_cookie = false;      ///< the token of the printed link was given: send cookie()
};

/// Thread-safe after construction.
class RequestCheck {
 public:
  /// `bind`, `port`: where the server listens. Throws std::runtime_error if the system gives no random numbers.
  RequestCheck(const std::string& bind, int port);

  Verdict judge(const CheckedRequest& request) const;
  const std::string& token() const { return token_; }
  /// The value of the header Set-Cookie.
  std::string cookie() const;

 private:
  bool host_allowed(std::string_view host) const;

  const std::string bind_;
  const std::string port_;
  const std::string token_, session_;  ///< of the printed link; of the cookie
  const std::string cookie_name_;      ///< with the port: browsers share a host's cookies among its ports
};

/// Loopback addresses need no secrecy of the line.
bool is_loopback(std::string_view host);

}  // namespace mv::tools
