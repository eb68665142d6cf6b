#include "transport/http/http.hpp"

#include <charconv>

#include "base/module_file.hpp"
#include "transport/http/module.hpp"

namespace mv::transport {

namespace {

base::Result<StartHttp> load_module() {
  const auto start = base::load_from_module(kHttpModuleFile, kHttpModuleEntry, "metrics");
  if (!start.ok()) return start.status();
  return reinterpret_cast<StartHttp>(start.value());
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

base::Result<std::unique_ptr<HttpServer>> serve_http(const std::string& address, HttpHandler handler, const TlsSettings& tls) {
  std::string host;
  int port = 0;
  if (const base::Status wrong = parse_address(address, host, port); !wrong.ok()) return wrong;
  static const base::Result<StartHttp> kStart = load_module();
  if (!kStart.ok()) return kStart.status();
  std::shared_ptr<TlsContext> context;  // its own, since it is used on the server's thread
  if (tls.mode == TlsMode::kMutual) {
    auto made = make_tls(tls.files);
    if (!made.ok()) return made.status();
    context = std::move(made).value();
  }
  base::Result<std::unique_ptr<HttpServer>> started = base::Status();
  kStart.value()(host, port, std::move(handler), std::move(context), started);
  return started;
}

}  // namespace mv::transport
