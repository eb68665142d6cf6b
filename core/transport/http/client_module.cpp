// The implementation of transport/http/client.hpp by cpp-httplib, in the module of module.cpp.

#include <fcntl.h>
#include <httplib.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "transport/http/module.hpp"

namespace mv::transport {

namespace {

/// A larger answer is not one of a service that a node talks to.
constexpr size_t kMostAnswerBytes = 64 << 20;

/// Ends a request that takes longer than it may: cpp-httplib limits the time of each read only. Without a thread for it, that has to do.
class Watchdog {
 public:
  Watchdog(httplib::ClientImpl& client, base::Nanos patience) {
    const auto watch = [this, &client, patience] {
      std::unique_lock lock(mutex_);
      if (!over_.wait_for(lock, patience, [this] { return is_over_; })) client.stop();
    };
    try {
      thread_ = std::thread(watch);
    } catch (const std::system_error&) {
    }
  }
  ~Watchdog() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // inherits the signal mask: callers block all signals
};

class ModuleClient final : public HttpClient {
 public:
  explicit ModuleClient(const HttpTarget& target) : target_(target) {
    if (target.tls) {
      auto client = std::make_unique<httplib::SSLClient>(target.host, target.port, target.cert, target.key);
      if (!target.ca.empty()) client->set_ca_cert_path(target.ca);
      client->enable_server_certificate_verification(true);
      client_ = std::move(client);
    } else {
      client_ = std::make_unique<httplib::ClientImpl>(target.host, target.port);
    }
    client_->set_keep_alive(true);
    client_->set_tcp_nodelay(true);
    client_->set_socket_options([](socket_t fd) { ::fcntl(fd, F_SETFD, FD_CLOEXEC); });
  }

  bool usable() const { return client_->is_valid(); }
  base::Result<HttpAnswer> post(const Request& request) override {
    std::string text;
    auto answer = send(
        request,
        [&](std::string_view part) {
          if (text.size() + part.size() > kMostAnswerBytes) return false;
          text += part;
          return true;
        },
        /*streams=*/false);
    if (!answer.ok()) return answer;
    answer.value().text = std::move(text);
    return answer;
  }
  base::Result<HttpAnswer> stream(const Request& request, const std::function<bool(std::string_view)>& take) override {
    return send(request, take, /*streams=*/true);
  }
  void cancel() noexcept override {
    canceled_ = true;
    client_->stop();
  }

 private:
  base::Result<HttpAnswer> send(const Request& request, const std::function<bool(std::string_view)>& take, bool streams) {
    if (canceled_) return base::Status(MV_ECANCELED, "the request was cancelled");
    httplib::Request http;
    http.method = "POST";
    http.path = request.path;
    http.body = request.body;
    const bool v6 = target_.host.find(':') != std::string::npos;
    http.set_header("Host", fmt::format("{}{}{}:{}", v6 ? "[" : "", target_.host, v6 ? "]" : "", target_.port));
    http.set_header("Content-Type", "application/json");
    if (!request.authorization.empty()) http.set_header("Authorization", request.authorization);
    HttpAnswer answer;
    answer.status = 0;
    bool ended_by_taker = false;
    http.response_handler = [&](const httplib::Response& response) {
      answer.status = response.status;
      return true;
    };
    http.content_receiver = [&](const char* bytes, size_t size, uint64_t, uint64_t) {
      ended_by_taker = !take({bytes, size});
      return !ended_by_taker;
    };
    const auto patience = std::max<base::Nanos>(request.patience, std::chrono::milliseconds(1));
    // cancel() does not end the attempt to connect.
    client_->set_connection_timeout(std::chrono::duration_cast<std::chrono::microseconds>(std::min<base::Nanos>(patience, std::chrono::seconds(1))));
    client_->set_read_timeout(std::chrono::duration_cast<std::chrono::microseconds>(patience));
    client_->set_write_timeout(std::chrono::duration_cast<std::chrono::microseconds>(patience));
    const auto result = [&] {
      const Watchdog watchdog(*client_, std::min<base::Nanos>(patience, std::chrono::hours(24)));
      return client_->send(http);
    }();
    if (canceled_) return base::Status(MV_ECANCELED, "the request was cancelled");
    // cpp-httplib 0.11 takes the trailers of etcd's errors for a broken answer, although the answer is complete.
    if (result || (answer.status != 0 && (streams || answer.status >= 400) && result.error() != httplib::Error::Canceled)) return answer;
    if (streams && ended_by_taker && answer.status != 0) return answer;
    return why_not(result.error());
  }
  base::Status why_not(httplib::Error error) const {
    switch (error) {
      case httplib::Error::Connection:
      case httplib::Error::BindIPAddress:
        return base::Status(MV_EUNREACHABLE, why_not_connected());
      case httplib::Error::ConnectionTimeout:
        return base::Status(MV_EUNREACHABLE, "the connection takes too long");
      case httplib::Error::SSLConnection:
        return base::Status(MV_EUNREACHABLE, "the TLS handshake fails");
      case httplib::Error::SSLLoadingCerts:
        return base::error(MV_EINVAL, "the file of authorities {} can't be used: it has to contain certificates as PEM", target_.ca);
      case httplib::Error::SSLServerVerification:
        return base::Status(MV_EUNREACHABLE, "its certificate is not valid for this name, or not signed by the given authorities");
      default:
        return base::Status(MV_EPEERLOST, "it has not answered");
    }
  }

  /// cpp-httplib does not tell a name without an address from a service that does not listen.
  std::string why_not_connected() const {
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(target_.host.c_str(), nullptr, nullptr, &found);
    if (found != nullptr) freeaddrinfo(found);
    return failed == 0 ? "it can't be connected to" : fmt::format("the name {} has no address: {}", target_.host, gai_strerror(failed));
  }

  const HttpTarget target_;
  std::unique_ptr<httplib::ClientImpl> client_;
  std::atomic<bool> canceled_{false};
};

}  // namespace

/// The function kHttpClientEntry, of type MakeHttpClient.
extern "C" __attribute__((visibility("default"))) void polyverso_http_client(const HttpTarget& target,
                                                                             base::Result<std::unique_ptr<HttpClient>>& made) {
  auto client = std::make_unique<ModuleClient>(target);
  if (client->usable())
    made = std::unique_ptr<HttpClient>(std::move(client));
  else
    made = base::error(MV_EINVAL, "the certificate {} or its key {} can't be used", target.cert, target.key);
}

}  // namespace mv::transport
