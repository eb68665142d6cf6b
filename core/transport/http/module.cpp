// The implementation of transport/http/http.hpp by cpp-httplib, in a module of its own: see there.

#include "transport/http/module.hpp"

#include <fcntl.h>
#include <httplib.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <span>
#include <system_error>
#include <thread>

#include "transport/fd.hpp"

namespace mv::transport {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// The limits of one connection, which is closed when it exceeds them.
constexpr auto kMostTime = 5s;
constexpr size_t kMostRequestBytes = 4 << 10;  // cpp-httplib uses regular expressions, whose stack grows with it
/// Of TLS's handshake, with the client's chain of certificates.
constexpr size_t kMostGreetingBytes = 64 << 10;
/// Bytes after a request are read and discarded, up to this many times 4 KiB.
constexpr size_t kMostRests = 64;
/// How often a wait checks whether the server stops.
constexpr auto kGlance = 200ms;

/// A connection with limits on its total time and bytes, however slowly or much the other side sends or reads.
/// cpp-httplib itself limits each line and each read, but not their number.
class LimitedStream final : public httplib::Stream {
 public:
  /// @param tls  null: not encrypted
  LimitedStream(int fd, const std::atomic<bool>& stopping, std::unique_ptr<TlsStream> tls) : fd_(fd), stopping_(stopping), tls_(std::move(tls)) {}

  /// TLS's handshake; to be called first. False if the client was refused.
  bool greet() {
    size_t left = kMostGreetingBytes;
    while (tls_ != nullptr && tls_->state() == TlsStream::State::kGreeting) {
      if (!send_output()) return false;
      if (tls_->state() != TlsStream::State::kGreeting) break;
      const auto room = tls_->room().first(std::min(left, tls_->room().size()));
      const ssize_t got = !room.empty() && wait(POLLIN) ? ::recv(fd_, room.data(), room.size(), 0) : -1;
      if (got <= 0) return false;
      left -= static_cast<size_t>(got);
      tls_->arrived(static_cast<size_t>(got));
    }
    return send_output() && (tls_ == nullptr || tls_->state() == TlsStream::State::kOpen);
  }
  bool is_readable() const override { return left_ > 0 && (tls_ != nullptr || wait(POLLIN)); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* to, size_t size) override {
    if (at_ < have_) return take(to, size);
    if (size == 0 || left_ == 0) return -1;
    const ssize_t got = tls_ != nullptr ? receive_opened() : wait(POLLIN) ? ::recv(fd_, buffer_.data(), std::min(buffer_.size(), left_), 0) : -1;
    if (got <= 0) return got;
    left_ -= std::min(left_, static_cast<size_t>(got));
    at_ = 0;
    have_ = static_cast<size_t>(got);
    return take(to, size);
  }
  ssize_t write(const char* from, size_t size) override {
    if (tls_ == nullptr) return is_writable() ? ::send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
    const size_t sealed = tls_->seal(std::as_bytes(std::span(from, size)));
    return sealed > 0 && send_output() ? static_cast<ssize_t>(sealed) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return fd_; }

 private:
  /// Decrypted bytes into the buffer; 0 at the end of the stream, -1 after an error.
  ssize_t receive_opened() {
    for (size_t left = kMostGreetingBytes; left > 0;) {  // of one record, which is 16 KiB at most
      const size_t opened = tls_->open(std::as_writable_bytes(std::span(buffer_)));
      if (opened > 0) return static_cast<ssize_t>(opened);
      if (tls_->state() != TlsStream::State::kOpen) return tls_->state() == TlsStream::State::kEnded ? 0 : -1;
      const auto room = tls_->room();
      const ssize_t got = !room.empty() && wait(POLLIN) ? ::recv(fd_, room.data(), std::min(left, room.size()), 0) : -1;
      if (got <= 0) return got;
      left -= static_cast<size_t>(got);
      tls_->arrived(static_cast<size_t>(got));
    }
    return -1;
  }
  bool send_output() {
    while (tls_ != nullptr && !tls_->output().empty()) {
      const auto output = tls_->output();
      const ssize_t sent = wait(POLLOUT) ? ::send(fd_, output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
      if (sent <= 0) return false;
      tls_->sent(static_cast<size_t>(sent));
    }
    return true;
  }
  ssize_t take(char* to, size_t size) {
    const size_t taken = std::min(size, have_ - at_);
    std::memcpy(to, buffer_.data() + at_, taken);
    at_ += taken;
    return static_cast<ssize_t>(taken);
  }
  bool wait(short what) const {
    while (!stopping_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - Clock::now());
      if (left <= 0ms) return false;
      pollfd watched{fd_, what, 0};
      const int ready = ::poll(&watched, 1, static_cast<int>(std::min<std::chrono::milliseconds>(left, kGlance).count()));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
    return false;
  }

  const int fd_;
  const std::atomic<bool>& stopping_;
  const std::unique_ptr<TlsStream> tls_;
  const Clock::time_point until_ = Clock::now() + kMostTime;
  size_t left_ = kMostRequestBytes;
  std::array<char, 2048> buffer_{};  // cpp-httplib reads requests by single characters
  size_t at_ = 0, have_ = 0;
};

/// A task queue that serves one connection after another, on the thread that accepts them; others wait in the kernel's
/// short backlog. It stops the server on that same thread, so that no other thread closes a descriptor that is in use.
class OneByOne final : public httplib::TaskQueue {
 public:
  OneByOne(httplib::Server& server, const std::atomic<bool>& stopping) : server_(server), stopping_(stopping) {}
  void enqueue(std::function<void()> serve) override {
    serve();
    on_idle();
  }
  void on_idle() override {
    if (stopping_) server_.stop();
  }
  void shutdown() override {}

 private:
  httplib::Server& server_;
  const std::atomic<bool>& stopping_;
};

class LimitedServer final : public httplib::Server {
 public:
  LimitedServer(const HttpHandler& handler, std::shared_ptr<TlsContext> tls) : tls_(std::move(tls)) {
    new_task_queue = [this] { return new OneByOne(*this, stopping_); };
    set_idle_interval(kGlance);
    set_socket_options([this](socket_t fd) {
      const int yes = 1;  // but not SO_REUSEPORT, cpp-httplib's default: two servers would silently share a port
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
      listening_ = fd;
    });
    set_pre_routing_handler([&handler](const httplib::Request& request, httplib::Response& response) {
      HttpAnswer answer{405, "text/plain; charset=utf-8", "only GET is supported\n"};
      if (request.method == "GET" || request.method == "HEAD") answer = handler(request.path);
      response.status = answer.status;
      response.set_content(answer.text, answer.type.c_str());
      return HandlerResponse::Handled;
    });
  }
  /// Makes the thread abandon its current connection and end. Any thread.
  void hurry() {
    stopping_ = true;
    sockaddr_storage own{};  // the address to dial: the thread may be asleep in accept(2)
    socklen_t length = sizeof own;
    if (::getsockname(listening_, reinterpret_cast<sockaddr*>(&own), &length) != 0) return;
    const Fd dial(::socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (dial) [[maybe_unused]] const int under_way = ::connect(dial.get(), reinterpret_cast<sockaddr*>(&own), length);
  }
  /// To be called once the thread has ended.
  void forget_descriptors() { listening_ = -1; }
  void close_descriptors() noexcept {
    for (const int fd : {listening_.load(), serving_.load()})
      if (fd >= 0) ::close(fd);
  }

 private:
  bool process_and_close_socket(socket_t fd) override {
    serving_ = fd;
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    const bool well = serve(fd);
    serving_ = -1;
    ::shutdown(fd, SHUT_WR);
    std::array<char, 4096> rest;  // a close with unread bytes would reset the connection and lose the answer
    for (size_t i = 0; i < kMostRests && ::recv(fd, rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) {
    }
    ::close(fd);
    return well;
  }

  bool serve(int fd) {
    std::unique_ptr<TlsStream> encrypted;
    if (tls_ != nullptr) {
      auto made = tls_->mutual(/*dials=*/false, "");
      if (!made.ok()) return false;
      encrypted = std::move(made).value();
    }
    LimitedStream stream(fd, stopping_, std::move(encrypted));
    bool closed = false;
    return stream.greet() && process_request(stream, /*close_connection=*/true, closed, nullptr);
  }

  const std::shared_ptr<TlsContext> tls_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> listening_{-1}, serving_{-1};
};

class ModuleServer final : public HttpServer {
 public:
  ModuleServer(HttpHandler handler, std::shared_ptr<TlsContext> tls)
      : handler_(std::move(handler)), scheme_(tls != nullptr ? "https://" : ""), server_(handler_, std::move(tls)) {}
  ~ModuleServer() override { stop(); }

  base::Status start(const std::string& host, int port) {
    errno = 0;
    const int bound = port == 0 ? server_.bind_to_any_port(host) : server_.bind_to_port(host, port) ? port : -1;
    const int why = errno;
    if (bound <= 0)
      return base::error(why == EADDRINUSE ? MV_EADDRINUSE : MV_ESYSTEM, "metrics: can't listen at {}:{}: {}", host, port,
                         why != 0 ? std::generic_category().message(why) : "no such address here");
    address_ = scheme_ + (host.find(':') == std::string::npos ? fmt::format("{}:{}", host, bound) : fmt::format("[{}]:{}", host, bound));
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
    base::Status status;
    try {
      thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "mv-http");
        server_.listen_after_bind();
        over_ = true;
      });
    } catch (const std::system_error& failed) {
      status = base::error(MV_ESYSTEM, "metrics: can't start a thread: {}", failed.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    while (status.ok() && !server_.is_running() && !over_) std::this_thread::yield();  // can be stopped from then on
    return status;
  }

  const std::string& address() const override { return address_; }
  void stop() override {
    if (!thread_.joinable()) return;
    server_.hurry();
    thread_.join();
    server_.forget_descriptors();
  }
  void abandon_after_fork() noexcept override { server_.close_descriptors(); }

 private:
  const HttpHandler handler_;
  const char* const scheme_;
  LimitedServer server_;
  std::string address_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

}  // namespace mv::transport

namespace mv::transport {

/// The function kHttpModuleEntry, of type StartHttp.
extern "C" __attribute__((visibility("default"))) void polyverso_start_http(const std::string& host, int port, HttpHandler handler,
                                                                            std::shared_ptr<TlsContext> tls,
                                                                            base::Result<std::unique_ptr<HttpServer>>& started) {
  auto server = std::make_unique<ModuleServer>(std::move(handler), std::move(tls));
  const base::Status status = server->start(host, port);
  if (status.ok())
    started = std::unique_ptr<HttpServer>(std::move(server));
  else
    started = status;
}

}  // namespace mv::transport
