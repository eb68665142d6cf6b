#include "dashboard/request_check.hpp"

#include <arpa/inet.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mv::tools {
namespace {

std::string random_text() {
  std::array<unsigned char, 24> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("dashboard: the system gives no random numbers for the link's token");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// Takes the same time wherever the texts differ, so that nobody can guess one character after another.
bool equal(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool is_number(std::string_view host) {
  std::array<unsigned char, 16> address;
  const std::string text(host);
  return inet_pton(AF_INET, text.c_str(), address.data()) == 1 || inet_pton(AF_INET6, text.c_str(), address.data()) == 1;
}

std::string machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// The value of a cookie in "a=1; b=2", or empty.
std::string_view cookie_of(std::string_view cookies, std::string_view name) {
  while (!cookies.empty()) {
    const size_t end = cookies.find(';');
    std::string_view one = cookies.substr(0, end);
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=') return one.substr(name.size() + 1);
    cookies = end == std::string_view::npos ? "" : cookies.substr(end + 1);
  }
  return "";
}

}  // namespace

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_number(host)); }

RequestCheck::RequestCheck(const std::string& bind, int port)
    : bind_(bind), port_(std::to_string(port)), token_(random_text()), session_(random_text()), cookie_name_("polyverso_" + port_) {}

/// A page whose name was rebound to our address still sends its own name as the host. It can't be a number, nor this machine's name.
bool RequestCheck::host_allowed(std::string_view host) const {
  if (!host.ends_with(":" + port_)) return false;
  host.remove_suffix(port_.size() + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (is_loopback(host) || host == bind_) return true;
  const bool everywhere = bind_ == "0.0.0.0" || bind_ == "::";
  return everywhere && (is_number(host) || host == machine());
}

Verdict RequestCheck::judge(const CheckedRequest& request) const {
  if (request.several_hosts || !host_allowed(request.host)) return {403, "The Host header is not this dashboard's address. Open the printed link.\n"};
  if (!request.origin.empty() && request.origin != "http://" + request.host) return {403, "Requests of other web pages are refused.\n"};
  if (request.method != "GET") return {405, "Only GET is supported.\n"};
  if (!request.token.empty() && equal(request.token, token_)) return {200, "", true};
  if (equal(cookie_of(request.cookie, cookie_name_), session_)) return {};
  return {403, "Open the link that `polyverso dashboard` has printed: it has the token that this page needs.\n"};
}

std::string RequestCheck::cookie() const { return fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name_, session_); }

}  // namespace mv::tools
