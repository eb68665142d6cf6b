#include "transport/tcp/tcp.hpp"

#include <poll.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/log.hpp"
#include "transport/tcp/interfaces.hpp"

namespace mv::transport {

using wire::Handshake;

/// A name lookup on one of libuv's threads. May outlive the transport.
struct TcpTransport::Lookup {
  uv_getaddrinfo_t request{};
  TcpTransport* transport;
  std::string address;
};

TcpTransport::TcpTransport(Loop& loop, TcpOptions options)
    : loop_(loop),
      options_(std::move(options)),
      peering_(loop, options_, options_.most_fenced),
      bucket_{options_.failures},
      timer_(loop, [this] { tick(); }) {
  token_.resize(kTokenBytes);
  randombytes_buf(token_.data(), token_.size());
  loop_.add_flusher(*this);
  loop_.add_sockets(*this);
}

TcpTransport::~TcpTransport() {
  loop_.remove_flusher(*this);
  loop_.remove_sockets(*this);
  for (Lookup* lookup : lookups_) {
    lookup->transport = nullptr;
    uv_cancel(reinterpret_cast<uv_req_t*>(&lookup->request));
  }
}

// ------------------------------------------------------------ listening

base::Result<std::string> TcpTransport::listen(const std::string& address) {
  const auto parsed = parse_address(address);
  if (!parsed.ok()) return parsed.status();
  const auto endpoints = resolve(parsed.value(), /*numeric_only=*/false, /*to_listen=*/true);
  if (!endpoints.ok()) return base::error(MV_EINVAL, "can't listen on {}", endpoints.status().text());
  const Endpoint& endpoint = endpoints.value().front();
  if (const base::Status reach = check_reach(address, endpoint); !reach.ok()) return reach;
  auto fd = listen_on(endpoint);
  if (!fd.ok()) return fd.status();
  return add_listener(std::move(fd).value());
}

base::Result<std::string> TcpTransport::adopt(int listening_fd) {
  Fd fd(listening_fd);
  const Endpoint endpoint = local_endpoint(fd.get());
  const int family = endpoint.storage.ss_family;
  if (endpoint.length == 0 || (family != AF_INET && family != AF_INET6))
    return base::error(MV_EINVAL, "descriptor {} is not a TCP socket that listens", listening_fd);
  if (const base::Status reach = check_reach(to_text(host_port(endpoint)), endpoint); !reach.ok()) return reach;
  prepare_stream(fd.get(), local_endpoint(fd.get()));
  return add_listener(std::move(fd));
}

/// Whether this node may listen there: not beyond loopback without a proof and, unless tls=off, encryption.
base::Status TcpTransport::check_reach(const std::string& where, const Endpoint& endpoint) {
  if (is_loopback(endpoint)) return {};
  if (needs_token())
    return base::error(MV_EINVAL, "listening on {}, beyond this machine, needs a secret: set POLYVERSO_SECRET (or `secret`) everywhere", where);
  if (options_.tls.mode != TlsMode::kOff) return prepare_tls();
  warn_of_plain(where);
  return {};
}

base::Result<std::string> TcpTransport::add_listener(Fd fd) {
  const std::string address = to_text(host_port(local_endpoint(fd.get())));
  auto listener =
      std::make_unique<Listener>(loop_, std::move(fd), [this](Fd accepted) { on_accept(std::move(accepted)); });
  if (!listener->ok()) return base::error(MV_ESYSTEM, "can't watch the socket that listens on {}", address);
  if (needs_token()) {
    auto desk = TokenDesk::make(loop_, options_.self, address, token_);
    if (!desk.ok()) return desk.status();
    desks_.push_back(std::move(desk).value());
  }
  listeners_.push_back(std::move(listener));
  if (own_address_.empty()) own_address_ = address;
  return address;
}

void TcpTransport::on_accept(Fd fd) {
  if (strangers_ >= options_.max_strangers) make_room();
  const HostPort from = host_port(remote_endpoint(fd.get()));
  Entry& entry = add_connection(std::make_unique<Connection>(loop_, as_owner(), to_text(from), std::move(fd)), Purpose::kAccepted,
                                loop_.now() + options_.hello_timeout);
  entry.stranger = true;
  entry.number = ++arrivals_;
  entry.host = from.host;
  ++strangers_;
  ++crowds_[entry.host];
  entry.connection->greet(make_handshake(Handshake::Side::kListener, /*resumes=*/false, *entry.connection));
}

void TcpTransport::no_stranger(Entry& entry) {
  if (!std::exchange(entry.stranger, false)) return;
  --strangers_;
  if (const auto crowd = crowds_.find(entry.host); --crowd->second == 0) crowds_.erase(crowd);
}

/// The known peer whose connection this stranger claims to resume, if it comes from that peer's host, which strangers
/// elsewhere cannot; else null.
TcpTransport::Known* TcpTransport::expected(const Entry& entry) {
  const wire::Introduction& said = entry.connection->handshake().peer();
  const auto known = peers_.find(said.incarnation);
  return said.resumes && known != peers_.end() && known->second.host == entry.host ? &known->second : nullptr;
}

/// Drops one stranger's connection to make room for the next. Partial progress in the hello gives no protection,
/// because any process can send half a hello.
void TcpTransport::make_room() {
  Entry* least = nullptr;
  const auto worth = [&](const Entry& entry) {
    const bool proved = entry.connection->handshake().state() == Handshake::State::kDeciding;
    return std::tuple(proved || expected(entry) != nullptr, -static_cast<ptrdiff_t>(crowds_.at(entry.host)), entry.connection->last_step(),
                      entry.number);
  };
  for (auto& [key, entry] : connections_)
    if (entry.stranger && entry.connection->greeting() && (least == nullptr || worth(entry) < worth(*least))) least = &entry;
  if (least == nullptr) return;
  log_stranger(base::error(MV_EUNREACHABLE, "{} had not finished the hello when too many other connections arrived", least->connection->address()));
  bury(*least->connection);
}

// ------------------------------------------------------------ dialing

void TcpTransport::dial(const std::string& address) {
  to_dial_.push_back(address);
  loop_.post([] {});  // one more turn: flush() may be the caller, after another dial has failed
}

void TcpTransport::start_dial(const std::string& address) {
  const auto parsed = parse_address(address);
  if (!parsed.ok()) return fail_dial(address, parsed.status());
  auto endpoints = resolve(parsed.value(), /*numeric_only=*/true, /*to_listen=*/false);
  if (!endpoints.ok()) return fail_dial(address, endpoints.status());
  if (!endpoints.value().empty()) return dial_endpoints(address, std::move(endpoints).value());

  auto* lookup = new Lookup{{}, this, address};
  lookup->request.data = lookup;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const auto looked_up = [](uv_getaddrinfo_t* request, int status, addrinfo* found) {
    const std::unique_ptr<Lookup> lookup(static_cast<Lookup*>(request->data));
    std::vector<Endpoint> endpoints;
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
      Endpoint& endpoint = endpoints.emplace_back();
      std::memcpy(&endpoint.storage, info->ai_addr, info->ai_addrlen);
      endpoint.length = info->ai_addrlen;
    }
    uv_freeaddrinfo(found);
    TcpTransport* transport = lookup->transport;
    if (transport == nullptr) return;
    std::erase(transport->lookups_, lookup.get());
    if (status == 0) return transport->dial_endpoints(lookup->address, std::move(endpoints));
    transport->fail_dial(lookup->address,
                    base::error(MV_EUNREACHABLE, "can't reach {}: {}", lookup->address, uv_strerror(status)));
  };
  const auto& [host, port] = parsed.value();
  if (const int failed = uv_getaddrinfo(&loop_.uv(), &lookup->request, looked_up, host.c_str(), port.c_str(), &hints);
      failed != 0) {
    delete lookup;
    return fail_dial(address, base::error(MV_EUNREACHABLE, "can't reach {}: {}", address, uv_strerror(failed)));
  }
  lookups_.push_back(lookup);
}

void TcpTransport::dial_endpoints(const std::string& address, std::vector<Endpoint> endpoints) {
  if (stopping_) return;
  add_connection(std::make_unique<Connection>(loop_, as_owner(), address, std::move(endpoints)), Purpose::kDial,
                 loop_.now() + options_.hello_timeout)
      .connection->connect();
}

void TcpTransport::fail_dial(const std::string& address, const base::Status& why) {
  if (!stopping_) events_->on_dial_failed(address, why);
}

TcpTransport::Entry& TcpTransport::add_connection(std::unique_ptr<Connection> connection, Purpose purpose, Nanos deadline) {
  const Connection* key = connection.get();
  Entry& entry = connections_[key];
  entry.connection = std::move(connection);
  entry.purpose = purpose;
  entry.deadline = deadline;
  need_tick();
  return entry;
}

/// Forgets a connection that has ended.
void TcpTransport::bury(Connection& connection) {
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return;
  connection.kill();
  no_stranger(found->second);
  if (found->second.query) dead_queries_.push_back(std::move(found->second.query));
  std::erase(unflushed_, &connection);
  std::erase_if(busy_, [&](const Busy& busy) { return busy.connection == &connection; });
  dead_.push_back(std::move(found->second.connection));
  connections_.erase(found);
}

// ------------------------------------------------------------ traffic

void TcpTransport::send(base::Peer to, const base::Frame& frame) {
  constexpr size_t kWriteEarly = 512 << 10;  // keeps the sockets busy while a long batch is queued
  constexpr size_t kObserverBytes = 4 << 20;  // an observer that does not read gets no more
  const auto known = peers_.find(to);
  if (known == peers_.end() || known->second.connection == nullptr) return;
  Connection& connection = *known->second.connection;
  if (known->second.observer && connection.queued() + frame.bytes() > kObserverBytes) return;
  if (connection.send(frame)) unflushed_.push_back(&connection);
  if (connection.queued() > kWriteEarly) connection.flush();
}

void TcpTransport::flush() {
  dead_queries_.clear();
  dead_.clear();
  if (!to_dial_.empty())
    for (const std::string& address : std::exchange(to_dial_, {}))
      if (!stopping_) start_dial(address);
  for (size_t i = 0; i < unflushed_.size(); ++i) unflushed_[i]->flush();
  unflushed_.clear();
  if (stopping_ && stopped_ && connections_.empty()) std::exchange(stopped_, nullptr)();
}

void TcpTransport::on_received(Connection& connection) {
  const auto found = std::ranges::find(busy_, &connection, &Busy::connection);
  if (found != busy_.end())
    found->spins = 0;
  else if (busy_.size() < kMostBusy)
    busy_.push_back({&connection, 0});
}

/// Heartbeats arrive rarely, and messages between hosts only after a time in which a caller can sleep.
bool TcpTransport::begin_reading() {
  std::erase_if(busy_, [](Busy& busy) { return ++busy.spins > kMostIdleSpins; });
  return !busy_.empty();
}

bool TcpTransport::read() {
  std::array<pollfd, kMostBusy> polled;
  const size_t count = busy_.size();
  if (count == 1) return busy_.front().connection->read();
  for (size_t i = 0; i < count; ++i) polled[i] = {busy_[i].connection->fd(), POLLIN, 0};
  if (poll(polled.data(), count, 0) <= 0) return false;
  bool any = false;
  for (size_t i = 0; i < count; ++i) {
    if (polled[i].revents == 0) continue;
    const auto ready = std::ranges::find(busy_, polled[i].fd, [](const Busy& busy) { return busy.connection->fd(); });
    if (ready != busy_.end()) any |= ready->connection->read();  // otherwise an earlier one's messages have ended it
  }
  return any;
}

// ------------------------------------------------------------ ends and breaks

void TcpTransport::close(base::Peer peer) {
  peering_.close(peer);
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  Connection* connection = known->second.connection;
  peers_.erase(known);
  end_attempts(peer, connection);
  if (connection == nullptr) return;
  connection->say_goodbye();
  entry_of(*connection).deadline = loop_.now() + kLinger;
  need_tick();
}

void TcpTransport::cut(base::Peer peer) {
  const auto known = peers_.find(peer);
  if (known != peers_.end() && known->second.connection != nullptr) known->second.connection->cut();
}

void TcpTransport::stop(std::function<void()> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  listeners_.clear();
  desks_.clear();
  peers_.clear();
  peering_.stop();
  std::vector<Connection*> all;
  for (auto& [key, entry] : connections_) all.push_back(entry.connection.get());
  for (Connection* connection : all) {
    connection->say_goodbye();
    entry_of(*connection).deadline = loop_.now() + kLinger;
    if (connection->state() == Connection::State::kDead) bury(*connection);
  }
  need_tick();
}

void TcpTransport::on_ended(Connection& connection, End how, const base::Status& why) {
  const base::Peer peer = entry_of(connection).peer;
  bury(connection);
  if (stopping_ || how == End::kClosed) return;
  const auto known = peers_.find(peer);
  if (known == peers_.end() || known->second.connection != &connection) return;
  known->second.connection = nullptr;
  how == End::kBroken && !known->second.observer ? broke(peer, known->second, why) : lose(peer, why);
}

void TcpTransport::broke(base::Peer peer, Known& known, const base::Status& why) {
  base::log_debug("{}", why.text());
  known.why = why.text();
  known.give_up_at = loop_.now() + options_.reconnect_grace;
  need_tick();
  try_to_mend(peer, known);
}

void TcpTransport::try_to_mend(base::Peer peer, Known& known) {
  if (known.endpoints.empty()) return;
  known.trying = true;
  const Purpose purpose = known.dialed ? Purpose::kRedial : Purpose::kProbe;
  auto connection = std::make_unique<Connection>(loop_, as_owner(), known.address, known.endpoints);
  Entry& entry = add_connection(std::move(connection), purpose, known.give_up_at);
  entry.peer = peer;
  entry.connection->connect();
}

void TcpTransport::mend_failed(base::Peer peer, const base::Status& why, Mending how) {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  known->second.trying = false;
  if (how == Mending::kEnded) lose(peer, base::error(MV_EPEERLOST, "its process ended without calling shutdown() ({})", why.text()));
  if (how == Mending::kRefused) lose(peer, base::error(MV_EPEERLOST, "{}, and it can't be restored: {}", known->second.why, why.text()));
}

/// Ends all attempts to restore the connection to `peer`, except `but`.
void TcpTransport::end_attempts(base::Peer peer, const Connection* but) {
  std::vector<Connection*> attempts;
  for (auto& [key, entry] : connections_) {
    if (entry.peer == peer && key != but && (entry.purpose == Purpose::kRedial || entry.purpose == Purpose::kProbe) &&
        entry.connection->state() < Connection::State::kOpen) {
      attempts.push_back(entry.connection.get());
    }
  }
  for (Connection* attempt : attempts) bury(*attempt);
}

void TcpTransport::lose(base::Peer peer, const base::Status& why) {
  const auto known = peers_.find(peer);
  const bool observer = known != peers_.end() && known->second.observer;
  if (known != peers_.end()) peers_.erase(known);
  if (!observer && options_.fences_lost) peering_.fence(peer);  // observers are unlimited in number
  end_attempts(peer, nullptr);
  base::log_debug("lost {:016x}: {}", peer, why.text());
  events_->on_lost(peer, why);
}

// ------------------------------------------------------------ time

void TcpTransport::need_tick() {
  if (!timer_.active()) timer_.start(options_.retry, options_.retry);
}

void TcpTransport::tick() {
  tick_connections();
  tick_proofs();
  tick_peers();
  if (nothing_to_watch()) timer_.stop();
}

bool TcpTransport::nothing_to_watch() const {
  return !peering_.awaits_any() &&
         std::none_of(connections_.begin(), connections_.end(),
                      [](const auto& item) { return item.second.deadline != base::kNever; }) &&
         std::none_of(peers_.begin(), peers_.end(),
                      [](const auto& item) { return item.second.connection == nullptr; });
}

void TcpTransport::tick_connections() {
  const Nanos now = loop_.now();
  std::vector<Connection*> late;
  for (auto& [key, entry] : connections_) {
    if (now >= entry.deadline) late.push_back(entry.connection.get());
  }
  for (Connection* connection : late) {
    const auto found = connections_.find(connection);
    if (found == connections_.end() || now < found->second.deadline) continue;  // the end of another one's hello may have let this one in, or ended it
    if (connection->state() == Connection::State::kClosing) {
      bury(*connection);
      continue;
    }
    connection->kill();
    on_failed(*connection, peering_.too_slow(connection->address()), false);
  }
}

/// Retries postponed proofs, and token queries that found the desk busy.
void TcpTransport::tick_proofs() {
  std::vector<const Connection*> due;
  for (const auto& [key, entry] : connections_)
    if (entry.waits || entry.query) due.push_back(key);
  for (const Connection* connection : due) {
    const auto found = connections_.find(connection);  // one proof may end another connection
    if (found == connections_.end()) continue;
    if (found->second.waits) on_deciding(*found->second.connection);
    else if (found->second.query) found->second.query->ask();
  }
}

void TcpTransport::tick_peers() {
  const Nanos now = loop_.now();
  std::vector<base::Peer> broken;
  for (const auto& [peer, known] : peers_) {
    if (known.connection == nullptr) broken.push_back(peer);
  }
  for (base::Peer peer : broken) {
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.connection != nullptr) continue;
    Known& known = found->second;
    if (now >= known.give_up_at) {
      const double seconds = base::seconds(options_.reconnect_grace);
      lose(peer, base::error(MV_EPEERLOST, "{}, and was not restored within {:g} s", known.why, seconds));
    } else if (!known.trying) {
      try_to_mend(peer, known);
    }
  }
  peering_.tick([this](const std::string& address, const base::Status& why) { fail_dial(address, why); });
}

}  // namespace mv::transport
