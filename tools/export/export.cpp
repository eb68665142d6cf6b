#include "export/export.hpp"

#include <httplib.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include <fmt/core.h>

#include "export/otlp.hpp"
#include "fetch.hpp"
#include "metrics_addresses.hpp"

namespace mv::tools {
namespace {

using Json = nlohmann::json;

int64_t since_1970() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Collector {
 public:
  Collector(const std::string& url, const std::vector<std::string>& headers) : url_(url) {
    const size_t scheme = url.find("://");
    const size_t slash = scheme == std::string::npos ? std::string::npos : url.find('/', scheme + 3);
    path_ = slash == std::string::npos || slash + 1 == url.size() ? "/v1/metrics" : url.substr(slash);
    client_ = std::make_unique<httplib::Client>(url.substr(0, slash));
    if (scheme == std::string::npos || !client_->is_valid())
      throw std::runtime_error(fmt::format("export: {} is not a URL: expected one such as http://localhost:4318", url));
    for (const std::string& header : headers) {
      const size_t colon = header.find(':');
      if (colon == std::string::npos || colon == 0) throw std::runtime_error(fmt::format("export: {} is no header: expected 'Name: value'", header));
      const size_t value = header.find_first_not_of(' ', colon + 1);
      headers_.emplace(header.substr(0, colon), value == std::string::npos ? "" : header.substr(value));
    }
    client_->set_connection_timeout(kPatience);
    client_->set_read_timeout(kPatience);
  }

  /// What went wrong; empty: nothing.
  std::string send(const Json& request) {
    const httplib::Result answer = client_->Post(path_, headers_, request.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json");
    if (!answer) return fmt::format("{}: {}", url_, what_failed(static_cast<int>(answer.error())));
    if (answer->status / 100 != 2) return fmt::format("{}: {} {}", url_, answer->status, answer->body.substr(0, 300));
    return "";
  }

 private:
  static constexpr time_t kPatience = 10;  // seconds
  const std::string url_;
  std::string path_;
  httplib::Headers headers_;
  std::unique_ptr<httplib::Client> client_;
};

/// The metrics of all processes that answer; of the others standard error tells.
Json read_all(const std::vector<std::string>& addresses) {
  Json resources = Json::array();
  for (const std::string& where : addresses) {
    try {
      resources.push_back(resource_metrics(fetch(where, "/metrics"), since_1970()));
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "polyverso export: {}\n", error.what());
    }
  }
  return resources;
}

}  // namespace

int export_metrics(const ExportOptions& options) {
  Collector collector(options.otlp, options.headers);
  const auto addresses = metrics_addresses("export", options.cluster, options.http);
  const auto interval = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(options.interval));
  for (bool first = true;; first = false) {
    const auto next = std::chrono::steady_clock::now() + interval;
    Json resources = read_all(addresses);
    if (resources.empty()) {
      fmt::print(stderr, "polyverso export: no process answers{}\n", first ? "" : " any more: the end");
      return first ? 1 : 0;
    }
    const size_t processes = resources.size();
    const std::string wrong = collector.send({{"resourceMetrics", std::move(resources)}});
    if (!wrong.empty()) fmt::print(stderr, "polyverso export: {}\n", wrong);
    if (options.once) return wrong.empty() ? 0 : 1;
    if (first && wrong.empty())
      fmt::print(stderr, "polyverso export: the metrics of {} processes go to {} every {:g} s\n", processes, options.otlp, options.interval);
    std::this_thread::sleep_until(next);
  }
}

}  // namespace mv::tools
