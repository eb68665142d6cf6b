#include "fetch.hpp"

#include <httplib.h>

#include <stdexcept>

#include <fmt/core.h>

namespace mv::tools {

std::string fetch(const std::string& where, const std::string& path) {
  constexpr time_t kPatience = 10;  // seconds
  const bool only_port = !where.empty() && where.find_first_not_of("0123456789") == std::string::npos;
  const std::string url = where.find("://") != std::string::npos ? where : fmt::format("http://{}{}", only_port ? "127.0.0.1:" : "", where);
  httplib::Client client(url);
  if (!client.is_valid()) throw std::runtime_error(fmt::format("{} is not an address: expected host:port, a port or http://host:port", where));
  client.set_connection_timeout(kPatience);
  client.set_read_timeout(kPatience);
  const httplib::Result answer = client.Get(path.c_str());
  if (!answer) throw std::runtime_error(fmt::format("{}{}: {}", url, path, httplib::to_string(answer.error())));
  if (answer->status != 200) throw std::runtime_error(fmt::format("{}{}: {} {}", url, path, answer->status, answer->body));
  return answer->body;
}

}  // namespace mv::tools
