#include "fetch.hpp"

#include <httplib.h>

#include <cstdlib>
#include <stdexcept>

#include <fmt/core.h>

namespace mv::tools {

namespace {

/// A setting of the environment, as the library names it.
std::string file_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : "";
}

/// Processes with tls=mutual serve HTTPS, and only clients with a certificate.
httplib::Client make_client(const std::string& url) {
  if (!url.starts_with("https:")) return httplib::Client(url);
  const std::string cert = file_of("POLYVERSO_TLS_CERT"), key = file_of("POLYVERSO_TLS_KEY"), ca = file_of("POLYVERSO_TLS_CA");
  if (cert.empty() || key.empty() || ca.empty())
    throw std::runtime_error(fmt::format("{} wants a certificate: set POLYVERSO_TLS_CERT, POLYVERSO_TLS_KEY and POLYVERSO_TLS_CA, as for the cluster", url));
  httplib::Client client(url, cert, key);
  client.set_ca_cert_path(ca);
  return client;
}

}  // namespace

std::string what_failed(int error) {
  switch (static_cast<httplib::Error>(error)) {
    case httplib::Error::Connection:
      return "nothing answers there, or its name is unknown";
    case httplib::Error::ConnectionTimeout:
      return "no connection in time";
    case httplib::Error::Read:
    case httplib::Error::Write:
      return "the connection ended, or there was no answer in time";
    case httplib::Error::SSLConnection:
      return "no TLS connection: see what TLS it wants";
    case httplib::Error::SSLServerVerification:
      return "its certificate is not valid here";
    default:
      return httplib::to_string(static_cast<httplib::Error>(error));
  }
}

std::string fetch(const std::string& where, const std::string& path) {
  constexpr time_t kPatience = 10;  // seconds
  const bool only_port = !where.empty() && where.find_first_not_of("0123456789") == std::string::npos;
  const std::string url = where.find("://") != std::string::npos ? where : fmt::format("http://{}{}", only_port ? "127.0.0.1:" : "", where);
  httplib::Client client = make_client(url);
  if (!client.is_valid()) throw std::runtime_error(fmt::format("{} is not an address: expected host:port, a port http://host:port or https://host:port", where));
  client.set_connection_timeout(kPatience);
  client.set_read_timeout(kPatience);
  const httplib::Result answer = client.Get(path.c_str());
  if (!answer) throw std::runtime_error(fmt::format("{}{}: {}", url, path, what_failed(static_cast<int>(answer.error()))));
  if (answer->status != 200) throw std::runtime_error(fmt::format("{}{}: {} {}", url, path, answer->status, answer->body));
  return answer->body;
}

}  // namespace mv::tools
