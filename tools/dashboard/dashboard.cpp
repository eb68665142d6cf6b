#include "dashboard/dashboard.hpp"

#include <httplib.h>
#include <polyverso/polyverso.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "dashboard/request_check.hpp"
#include "dashboard/history.hpp"
#include "dashboard/page.hpp"
#include "library_text.hpp"
#include "run/options.hpp"

namespace mv::tools {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kInterval = 250ms;
/// After each poll, the poller rests this many times the CPU time that it took: it takes 2 % of a core at most.
constexpr int kRest = 50;
/// A poll that takes longer is shown: the master may be stopped. Gossiping nodes have no master: each is asked, and one that is stopped is waited
/// for, as long as mv_gossip_status_text() says.
constexpr auto kLate = 1s, kLateGossip = 4s;
/// With a charset, cpp-httplib does not compress it. Brotli would cost ten times as much as the rest of the command.
constexpr const char* kJson = "application/json; charset=utf-8";
constexpr size_t kThreads = 32;  // cpp-httplib keeps one for each open connection, and a browser opens six

/// Of this thread.
Clock::duration cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Polls a cluster, or gossiping nodes, on a thread of its own, however many browsers look. Other methods: any thread.
class Poller {
 public:
  explicit Poller(const DashboardOptions& options) : options_(options) { choose(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  ~Poller() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = std::thread([this] { run(); });
  }

  /// The newest answer, as {"number", "error", "age_seconds", "status"}. If its number is `after`, or less: empty, or without the status if
  /// the cluster has not answered the newest poll yet, and should have.
  std::string newest(uint64_t after) const {
    const std::scoped_lock lock(mutex_);
    const auto now = Clock::now();
    const bool is_late = asked_ && now - *asked_ > late(), is_new = number_ > after;
    if (!is_new && !is_late) return "";
    const double age = answered_ == Clock::time_point{} ? 0 : std::chrono::duration<double>(now - answered_).count();
    const char* const silent = options_.gossip.empty() ? "the cluster's master has not answered yet" : "the nodes have not answered yet";
    const std::string error = is_late ? silent : error_;
    const Json head = {{"number", number_}, {"age_seconds", age}, {"error", error.empty() ? Json() : Json(error)}};
    std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
    text.pop_back();
    return text + ",\"status\":" + (!is_new || status_.empty() ? "null" : status_) + "}";
  }

  /// The settings that name the cluster; empty if there is none.
  std::string cluster() const {
    const std::scoped_lock lock(mutex_);
    return target_.settings;
  }

  std::string history(int64_t since) const {
    const std::scoped_lock lock(mutex_);
    return history_.to_json(since);
  }

 private:
  Clock::duration late() const { return options_.gossip.empty() ? kLate : kLateGossip; }

  /// Finds the cluster. A run that has ended may have a successor.
  void choose() {
    if (!options_.gossip.empty() || !options_.from.empty()) return;
    Target target = targets_of("dashboard", options_.cluster, true).front();
    const std::scoped_lock lock(mutex_);
    target_ = std::move(target);
  }

  /// The JSON of the status. Throws std::runtime_error or UsageError with the reason.
  std::string ask() const {
    if (!options_.from.empty()) {
      std::ifstream file(options_.from);
      if (!file) throw std::runtime_error(fmt::format("{}: the file can't be read", options_.from));
      return {std::istreambuf_iterator<char>(file), {}};
    }
    std::string text;
    const mv_status status = whole_text(
        [&](char* out, uint64_t capacity, uint64_t* length) {
          if (!options_.gossip.empty()) return mv_gossip_status_text(options_.gossip.c_str(), MV_JSON, out, capacity, length);
          return mv_cluster_status_text(target_.settings.c_str(), uint32_t{MV_JSON} | uint32_t{MV_LIVE}, out, capacity, length);
        },
        text);
    if (status != MV_OK) throw std::runtime_error(mv_last_error());
    return text;
  }

  void poll() {
    std::string text, error;
    Json status;
    try {
      text = ask();
      status = Json::parse(text);
    } catch (const UsageError& refused) {
      error = refused.text;
    } catch (const std::exception& failed) {
      error = failed.what();
    }
    {
      const std::scoped_lock lock(mutex_);
      ++number_;
      error_ = error;
      if (error.empty()) {
        status_ = std::move(text);
        answered_ = Clock::now();
        history_.add(std::chrono::duration<double>(answered_ - begin_).count(), status);
      }
    }
    if (error.empty()) return;
    try {
      choose();
    } catch (const UsageError&) {  // no run yet: the page shows the error of the old one
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto begun = Clock::now();
      const auto used = cpu_time();
      asked_ = begun;
      lock.unlock();
      poll();
      lock.lock();
      asked_.reset();
      const auto rest = kRest * (cpu_time() - used);
      wake_.wait_until(lock, std::max(begun + kInterval, Clock::now() + rest), [this] { return stopping_; });
    }
  }

  const DashboardOptions& options_;
  Target target_;
  const Clock::time_point begin_ = Clock::now();
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  uint64_t number_ = 0;
  std::string error_, status_;
  Clock::time_point answered_;
  std::optional<Clock::time_point> asked_;  ///< while the cluster is asked
  History history_;
  std::thread thread_;
};

/// The logs of members, for the page. One question at a time, whose answer is kept for a while: however many browsers look, the cluster is
/// asked at a limited rate. Any thread.
class Logs {
 public:
  explicit Logs(const Poller& poller) : poller_(poller) {}

  /// As mv_cluster_log_text(); the error of the call is `error`, too.
  std::string of(int64_t rank) {
    const std::scoped_lock lock(mutex_);
    if (rank == rank_ && Clock::now() < until_) return text_;
    text_ = ask(rank);
    rank_ = rank;
    until_ = Clock::now() + kInterval;
    return text_;
  }

 private:
  std::string ask(int64_t rank) const {
    const std::string cluster = poller_.cluster();
    std::string text, error = "only the processes of a cluster have a log";
    if (!cluster.empty()) {
      const auto call = [&](char* out, uint64_t capacity, uint64_t* length) {
        return mv_cluster_log_text(cluster.c_str(), rank, MV_JSON, out, capacity, length);
      };
      const mv_status status = whole_text(call, text);
      if (status == MV_OK) return text;
      error = mv_last_error();
    }
    const Json told = {{"rank", rank}, {"error", error}, {"lines", Json::array()}, {"left_out", 0}};
    return told.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const Poller& poller_;
  std::mutex mutex_;
  int64_t rank_ = -1;
  std::string text_;
  Clock::time_point until_;
};

const char* type_of(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

int64_t number_in(const httplib::Request& request, const char* name) {
  return std::max<int64_t>(0, std::strtoll(request.get_param_value(name).c_str(), nullptr, 10));
}

void answer(const httplib::Request& request, httplib::Response& response, const Poller& poller, Logs& logs) {
  if (request.path == "/api/status") {
    const std::string text = poller.newest(static_cast<uint64_t>(number_in(request, "after")));
    response.status = text.empty() ? 204 : 200;
    if (!text.empty()) response.set_content(text, kJson);
    return;
  }
  if (request.path == "/api/history") {
    response.status = 200;
    return response.set_content(poller.history(number_in(request, "since")), kJson);
  }
  if (request.path == "/api/log") {
    response.status = 200;
    return response.set_content(logs.of(number_in(request, "rank")), kJson);
  }
  const std::string name = request.path == "/" ? "index.html" : request.path.substr(1);
  for (const PageFile& file : page_files()) {
    if (file.name != name) continue;
    response.status = 200;
    return response.set_content(file.text.data(), file.text.size(), type_of(name));
  }
  response.status = 404;
  response.set_content("There is no such page.\n", "text/plain; charset=utf-8");
}

void set_headers(httplib::Response& response) {
  response.set_header("Content-Security-Policy",
                      "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Cross-Origin-Resource-Policy", "same-origin");
  response.set_header("Cache-Control", "no-store");
}

void handle(const httplib::Request& request, httplib::Response& response, const RequestCheck& check, const Poller& poller, Logs& logs) {
  set_headers(response);
  const Verdict verdict = check.judge({request.method, request.get_header_value("Host"), request.get_header_value("Origin"),
                                       request.get_header_value("Cookie"), request.get_param_value("token"),
                                       request.get_header_value_count("Host") != 1});
  if (verdict.status != 200) {
    response.status = verdict.status;
    return response.set_content(verdict.text, "text/plain; charset=utf-8");
  }
  if (verdict.set_cookie) response.set_header("Set-Cookie", check.cookie());
  answer(request, response, poller, logs);
}

}  // namespace

int serve_dashboard(const DashboardOptions& options) {
  if (!options.gossip.empty() && !std::ifstream(options.gossip)) {
    fmt::print(stderr, "polyverso dashboard: --gossip {}: the file can't be read\n", options.gossip);
    return 1;
  }
  Poller poller(options);
  Logs logs(poller);
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_read_timeout(5);
  server.set_write_timeout(5);
  server.set_keep_alive_timeout(2);
  server.set_payload_max_length(1024);
  server.set_socket_options([](socket_t fd) {
    const int yes = 1;  // but not SO_REUSEPORT, cpp-httplib's default: two servers would silently share a port
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const int port = options.port == 0 ? server.bind_to_any_port(options.bind) : server.bind_to_port(options.bind, options.port) ? options.port : -1;
  if (port <= 0) {
    fmt::print(stderr,
               "polyverso dashboard: can't listen at {}:{}: the port is taken, or the address is not this machine's; choose others with "
               "--port and --bind\n",
               options.bind, options.port);
    return 1;
  }
  const RequestCheck check(options.bind, port);
  server.set_pre_routing_handler([&](const httplib::Request& request, httplib::Response& response) {
    handle(request, response, check, poller, logs);
    return httplib::Server::HandlerResponse::Handled;
  });
  if (!is_loopback(options.bind))
    fmt::print(stderr, "polyverso dashboard: {} is not loopback, and HTTP is not encrypted: whoever reads the line can read the page and its token\n",
               options.bind);
  poller.start();
  const bool ipv6 = options.bind.find(':') != std::string::npos;
  fmt::print("http://{}{}{}:{}/?token={}\n", ipv6 ? "[" : "", options.bind, ipv6 ? "]" : "", port, check.token());
  std::fflush(stdout);
  return server.listen_after_bind() ? 0 : 1;
}

}  // namespace mv::tools
