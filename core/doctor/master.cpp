#include "doctor/master.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/local_rendezvous.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/socket.hpp"
#include "transport/tls/tls.hpp"
#include "transport/token.hpp"
#include "wire/handshake.hpp"

namespace mv::doctor {

namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kTooEarly =
    "nothing to do until rank 0 has called mv_init(); to test a start, run `polyverso doctor --join` in all processes";

/// A connection with a deadline for its waits.
class Caller {
 public:
  explicit Caller(transport::Fd fd) : fd_(std::move(fd)) {}

  void give(base::Nanos patience) { deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience); }
  int get() const { return fd_.get(); }
  /// False if the deadline passes first.
  bool wait(short events) const {
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      pollfd waits{fd_.get(), events, 0};
      const int ready = poll(&waits, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
      if (ready > 0) return true;
      if (ready == 0) return false;
      if (errno != EINTR) return false;
    }
  }
  bool send_all(std::vector<std::byte>& bytes) const {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t done = send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (done > 0) {
        sent += static_cast<size_t>(done);
      } else if (errno != EINTR && (errno != EAGAIN || !wait(POLLOUT))) {
        return false;
      }
    }
    bytes.clear();
    return true;
  }

 private:
  transport::Fd fd_;
  Clock::time_point deadline_;
};

const char* what_refuses(int failure) {
  switch (failure) {
    case ECONNREFUSED:
      return "start rank 0: its machine answers, but nothing listens at this port; if rank 0 runs, compare its "
             "POLYVERSO_MASTER and check where it listens (ss -ltnp)";
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "no route to that network: check the address and the routes (ip route get)";
    default:
      return "check that rank 0's machine is up, and that no firewall drops packets to this port";
  }
}

/// Connects to the first endpoint that answers.
std::optional<Caller> connect_to(const std::vector<transport::Endpoint>& endpoints, Expected expected, base::Nanos patience,
                                 Findings& findings) {
  int failure = 0;
  std::string tried;
  for (const transport::Endpoint& endpoint : endpoints) {
    const std::string address = transport::to_text(transport::host_port(endpoint));
    const auto begun = Clock::now();
    Caller caller(transport::start_connect(endpoint, &failure));
    caller.give(patience);
    if (failure == 0) failure = caller.wait(POLLOUT) ? transport::connect_result(caller.get()) : ETIMEDOUT;
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
    if (failure == 0) {
      findings.ok("connection", fmt::format("{} accepted after {:.2g} ms", address, took));
      return caller;
    }
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", address, std::strerror(failure));
  }
  if (failure == ECONNREFUSED && expected == Expected::kMayRun)
    findings.note("connection", fmt::format("{}: nothing listens there yet", tried), kTooEarly);
  else
    findings.problem("connection", tried, what_refuses(failure));
  return std::nullopt;
}

/// Introduces this process as an observer. Its incarnation is random, so that no other process has it, and very large:
/// of two simultaneous dials, the one of the larger incarnation stays.
wire::Introduction introduction() {
  wire::Introduction self;
  if (getrandom(&self.incarnation, sizeof self.incarnation, 0) != sizeof self.incarnation)
    self.incarnation = base::kNobody;
  self.incarnation |= 0xffff'0000'0000'0001;
  self.capabilities = wire::kObserves;
  return self;
}

wire::Handshake make_handshake(const Caller& caller, const runtime::Settings& settings) {
  wire::Handshake::Randomness randomness;
  const ssize_t random = getrandom(&randomness, sizeof randomness, 0);
  static_cast<void>(random);  // no kernel refuses so few bytes; if one did, at worst the master would refuse the hello
  wire::Introduction self = introduction();
  self.has_secret = !settings.secret.empty();
  self.tls = transport::demand_of(settings.tls_settings().mode, !transport::is_loopback(transport::remote_endpoint(caller.get())));
  return {wire::Handshake::Side::kDialer, std::move(self), randomness};
}

/// The hello over a connection, encrypted where the two sides agree on that.
class Hello {
 public:
  using State = wire::Handshake::State;
  Hello(const Caller& caller, const runtime::Settings& settings, base::Nanos patience)
      : caller_(caller), settings_(settings), patience_(patience), hello_(make_handshake(caller, settings)) {}

  const wire::Handshake& handshake() const { return hello_; }
  /// Why it has failed, if the handshake can't know the reason.
  const base::Status& why_not() const { return why_not_; }
  std::string cipher() const { return tls_ != nullptr ? tls_->cipher() : ""; }

  /// Feeds received bytes to the hello until it ends. Returns why the connection ended before that, or "".
  std::string converse() {
    while (hello_.state() != State::kDone && hello_.state() != State::kFailed) {
      if (hello_.state() == State::kSecret) why_not_ = prove();
      if (!send(hello_.output())) return "the connection breaks while this side sends";
      if (!why_not_.ok()) break;
      if (hello_.state() == State::kTls) {
        if (const std::string broken = encrypt(); !broken.empty()) return broken;
        continue;
      }
      std::byte bytes[256];
      const ssize_t got = receive(std::span(bytes).first(std::min(sizeof bytes, hello_.wants())));
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return got < 0 && errno == ETIMEDOUT ? "it does not answer" : "it closes the connection";
      hello_.feed({bytes, static_cast<size_t>(got)});
    }
    return {};
  }
  bool send(std::vector<std::byte>& bytes) {
    if (tls_ == nullptr) return caller_.send_all(bytes);
    tls_->seal(bytes);
    bytes.clear();
    return send_sealed();
  }

 private:
  /// Proves the secret, or that this process belongs to the same user. Returns the error if the user differs.
  base::Status prove() {
    if (!settings_.secret.empty() || hello_.tls() == wire::Tls::kMutual) {
      hello_.prove(settings_.secret);
      return {};
    }
    const std::string listener = transport::to_text(transport::host_port(transport::remote_endpoint(caller_.get())));
    const auto token = transport::ask_for_token(hello_.peer().incarnation, listener, patience_);
    if (token.ok())
      hello_.prove(token.value(), transport::ends_of(caller_.get(), /*dialed=*/true));
    else
      hello_.refuse(wire::Refusal::kUser);
    return token.ok() ? base::Status() : token.status();
  }
  /// Runs TLS's handshake. Returns why the connection ended, or "".
  std::string encrypt() {
    const bool mutual = hello_.tls() == wire::Tls::kMutual;
    const auto context = transport::make_tls(mutual ? settings_.tls_settings().files : transport::TlsFiles());
    const auto master = transport::parse_address(settings_.master);
    auto made = !context.ok() ? base::Result<std::unique_ptr<transport::TlsStream>>(context.status())
                : mutual      ? context.value()->mutual(/*dials=*/true, master.ok() ? master.value().host : "")
                              : context.value()->psk(/*dials=*/true, hello_.key());
    if (made.ok()) tls_ = std::move(made).value();
    why_not_ = tls_ != nullptr ? base::Status() : made.status();
    while (why_not_.ok() && tls_->state() == transport::TlsStream::State::kGreeting) {
      if (!send_sealed()) return "the connection breaks while this side sends";
      if (!caller_.wait(POLLIN)) return "it does not answer";
      const ssize_t got = recv(caller_.get(), tls_->room().data(), tls_->room().size(), 0);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return "it closes the connection";
      tls_->arrived(static_cast<size_t>(got));
    }
    if (why_not_.ok() && !send_sealed()) return "the connection breaks while this side sends";
    if (why_not_.ok() && tls_->state() == transport::TlsStream::State::kOpen) {
      const auto& binding = tls_->binding();
      hello_.encrypted(mutual ? std::string_view(reinterpret_cast<const char*>(binding.data()), binding.size()) : "");
      return "";
    }
    if (why_not_.ok() && mutual) why_not_ = tls_->why();
    hello_.not_encrypted();
    return "";
  }
  bool send_sealed() {
    std::vector<std::byte> bytes(tls_->output().begin(), tls_->output().end());
    tls_->sent(bytes.size());
    return caller_.send_all(bytes);
  }
  /// Like recv(); ETIMEDOUT after the caller's patience.
  ssize_t receive(std::span<std::byte> to) {
    while (true) {
      const size_t opened = tls_ != nullptr ? tls_->open(to) : 0;
      if (opened > 0) return static_cast<ssize_t>(opened);
      if (tls_ != nullptr && tls_->state() != transport::TlsStream::State::kOpen) {
        if (tls_->state() == transport::TlsStream::State::kFailed) why_not_ = tls_->why();
        return 0;
      }
      errno = ETIMEDOUT;
      if (!caller_.wait(POLLIN)) return -1;
      const std::span<std::byte> room = tls_ != nullptr ? tls_->room() : to;
      const ssize_t got = recv(caller_.get(), room.data(), room.size(), 0);
      if (got <= 0 || tls_ == nullptr) return got;
      tls_->arrived(static_cast<size_t>(got));
    }
  }

  const Caller& caller_;
  const runtime::Settings& settings_;
  const base::Nanos patience_;
  wire::Handshake hello_;
  std::unique_ptr<transport::TlsStream> tls_;
  base::Status why_not_;
};

std::string remedy(const wire::Handshake& hello) {
  switch (hello.refusal()) {
    case wire::Refusal::kUser:
      return "set POLYVERSO_SECRET to the same text here and for rank 0, or run this as rank 0's user";
    case wire::Refusal::kSecret:
      return "set POLYVERSO_SECRET to exactly the same text here and for rank 0; the shell may have cut it at a quote or "
             "a newline";
    case wire::Refusal::kVersion:
    case wire::Refusal::kByteOrder:
      return "install the same release of Polyverso on both machines";
    case wire::Refusal::kTls:
      return "set POLYVERSO_TLS to the same word here and for rank 0";
    case wire::Refusal::kCertificate:
      return "compare the certificates of both sides: tls_cert, tls_ca, their names and times";
    case wire::Refusal::kBusy:
      return "find the program that connects there without a hello, or try again later";
    default:
      return "find the program that listens at that port (ss -ltnp on its machine), and set POLYVERSO_MASTER to rank 0's address";
  }
}

void say_hello(const Caller& caller, const runtime::Settings& settings, Expected expected, base::Nanos patience, Findings& findings) {
  const std::string& master = settings.master;
  Hello conversation(caller, settings, patience);
  const std::string broken = conversation.converse();
  const wire::Handshake& hello = conversation.handshake();
  const base::Status& why_not = conversation.why_not();
  if (hello.state() == wire::Handshake::State::kDone) {
    const auto last = wire::goodbye();
    std::vector<std::byte> bytes(last.begin(), last.end());
    conversation.send(bytes);
    findings.ok("hello", fmt::format("it speaks Polyverso's protocol, version {}", hello.version()));
    if (hello.tls() == wire::Tls::kMutual)
      findings.ok("certificates", "both sides accept each other's");
    if (hello.tls() != wire::Tls::kMutual || !settings.secret.empty())
      findings.ok("secret", settings.secret.empty() ? "neither side has one: both processes belong to this user" : "both sides have the same one");
    findings.ok("encryption", conversation.cipher().empty() ? "none" : conversation.cipher());
    return;
  }
  if (!broken.empty() && why_not.ok() && expected == Expected::kMayRun)
    return findings.note("hello", fmt::format("{} accepts the connection, but then {}", master, broken), kTooEarly);
  if (!broken.empty() && why_not.ok())
    return findings.problem(
        "hello", fmt::format("{} accepts the connection, but then {}", master, broken),
        "find the program that listens at that port (ss -ltnp on its machine), and check whether rank 0 hangs or is stopped");
  const bool proved_wrong = hello.refusal() == wire::Refusal::kSecret || hello.refusal() == wire::Refusal::kUser;
  const bool by_tls = hello.refusal() == wire::Refusal::kTls || hello.refusal() == wire::Refusal::kCertificate || (!proved_wrong && !why_not.ok());
  findings.problem(by_tls ? "encryption" : proved_wrong ? "secret" : "hello", (why_not.ok() ? hello.why(master) : why_not).text(), remedy(hello));
}

}  // namespace

Findings reach_master(const runtime::Settings& settings, Expected expected, base::Nanos patience) {
  const std::string& master = settings.master;
  Findings findings("master");
  const auto address = transport::parse_address(master);
  if (!address.ok()) {
    findings.problem("address", address.status().text(), "write the master as host:port or [v6]:port");
    return findings;
  }
  const auto endpoints = transport::resolve(address.value(), /*numeric_only=*/false, /*to_listen=*/false);
  if (!endpoints.ok() || endpoints.value().empty()) {
    findings.problem("name", endpoints.ok() ? address.value().host + " has no address" : endpoints.status().text(),
                     "check its spelling and the name service (getent hosts), or use an address instead");
    return findings;
  }
  std::string addresses;
  bool all_loopback = true;
  for (const transport::Endpoint& endpoint : endpoints.value()) {
    addresses += (addresses.empty() ? "" : ", ") + transport::host_port(endpoint).host;
    all_loopback = all_loopback && transport::is_loopback(endpoint);
  }
  const bool spelled_so = address.value().host == "localhost" || transport::is_loopback_text(address.value().host);
  if (all_loopback && !spelled_so)
    findings.note("name", fmt::format("{} is {} on this machine", address.value().host, addresses),
                  "nothing to do if rank 0 runs on this machine; else /etc/hosts here maps another machine's name to "
                  "loopback: use its address");
  else
    findings.ok("name", fmt::format("{} is {}", address.value().host, addresses));
  if (auto caller = connect_to(endpoints.value(), expected, patience, findings)) {
    caller->give(patience);
    say_hello(*caller, settings, expected, patience, findings);
  }
  return findings;
}

Findings reach_by_name(const runtime::Settings& settings, base::Nanos patience) {
  const auto meeting = runtime::ask_rank_0(settings.rendezvous, patience);
  if (meeting.ok()) {
    runtime::Settings met = settings;
    met.master = meeting.value().address;
    if (met.secret.empty()) met.secret = meeting.value().secret;
    return reach_master(met, Expected::kRuns, patience);
  }
  Findings findings("master");
  if (meeting.status().code() == MV_ETIMEOUT)
    findings.note(
        "address",
        fmt::format("rank 0 does not publish its address under the job's name ({}) yet", settings.rendezvous),
        kTooEarly);
  else
    findings.problem("address", meeting.status().text(), "set POLYVERSO_MASTER=host:port for all processes");
  return findings;
}

}  // namespace mv::doctor
