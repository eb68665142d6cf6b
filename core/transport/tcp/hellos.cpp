// The start of a connection: what both sides prove, and which peers are accepted.

#include <algorithm>

#include "base/log.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/tcp.hpp"

namespace mv::transport {

using wire::Handshake;
using wire::Refusal;

Handshake TcpTransport::make_handshake(Handshake::Side side, bool resumes, const Connection& connection) const {
  wire::Introduction self;
  self.capabilities = options_.capabilities | (options_.observes ? wire::kObserves : 0);
  self.resumes = resumes;
  self.tls = demand_of(options_.tls.mode, !is_loopback(remote_endpoint(connection.fd())));
  self.address = own_address_;
  return peering_.handshake(side, std::move(self));
}

void TcpTransport::on_stream(Connection& connection) {
  Entry& entry = entry_of(connection);
  if (entry.purpose == Purpose::kProbe) {  // alive: it may still reconnect by itself
    if (const auto known = peers_.find(entry.peer); known != peers_.end()) known->second.trying = false;
    return bury(connection);
  }
  connection.greet(make_handshake(Handshake::Side::kDialer, entry.purpose == Purpose::kRedial, connection));
}

void TcpTransport::on_deciding(Connection& connection) {
  Entry& entry = entry_of(connection);
  if (connection.handshake().state() == Handshake::State::kTls) return encrypt(entry);
  if (connection.handshake().side() == Handshake::Side::kDialer) return decide_as_dialer(entry);
  connection.handshake().state() == Handshake::State::kDeciding ? decide_as_listener(entry) : prove_as_listener(entry);
}

bool TcpTransport::TokenBucket::take(Nanos now, double most, double per_second) {
  left = std::min(most, left + per_second * base::seconds(now - at));
  at = now;
  if (left < 1) return false;
  left -= 1;
  return true;
}

/// Whether the token bucket allows a listener to compute for this connection now: see TcpOptions::failures. Otherwise it waits.
bool TcpTransport::may_prove(Entry& entry) {
  const Nanos now = loop_.now();
  Known* const member = expected(entry);
  const bool as_member = member != nullptr && member->bucket.take(now, options_.member_failures, options_.member_failures_per_second);
  entry.charged = !as_member && bucket_.take(now, options_.failures, options_.failures_per_second);
  entry.waits = !as_member && !entry.charged;
  return !entry.waits;
}

/// Proves the secret, or postpones that.
void TcpTransport::prove_as_listener(Entry& entry) {
  Connection& connection = *entry.connection;
  const bool certified = connection.handshake().tls() == wire::Tls::kMutual;  // and rationed before
  if (certified && !is_named(entry)) {
    entry.why = base::error(MV_EAUTH, "{}: its certificate is not for \"{}\", by which it introduces itself: issue it with that subjectAltName",
                            connection.address(), connection.handshake().peer().address);
    return refuse(entry, Refusal::kCertificate);
  }
  if (!certified && !may_prove(entry)) return;
  connection.handshake().prove(needs_token() ? token_ : options_.secret, needs_token() ? ends_of(connection.fd(), /*dialed=*/false) : "");
  connection.continue_greeting();
}

/// Requests the token that takes the place of the secret.
void TcpTransport::ask_for_token(Entry& entry) {
  Connection& connection = *entry.connection;
  const Endpoint remote = remote_endpoint(connection.fd());
  if (!is_loopback(remote))
    return got_token(entry, base::error(MV_EAUTH,
                                        "this process has no secret, and {} is beyond this machine's loopback: set POLYVERSO_SECRET (or "
                                        "`secret`) to the same value on both",
                                        connection.address()));
  Connection* key = &connection;
  const auto told = [this, key](const base::Result<std::string>& token) {
    if (const auto found = connections_.find(key); found != connections_.end()) got_token(found->second, token);
  };
  entry.query = std::make_unique<TokenQuery>(loop_, connection.handshake().peer().incarnation, to_text(host_port(remote)), told);
  entry.query->ask();
}

void TcpTransport::got_token(Entry& entry, const base::Result<std::string>& token) {
  Connection& connection = *entry.connection;
  if (connection.handshake().state() != Handshake::State::kSecret) return;
  if (token.ok()) {
    connection.handshake().prove(token.value(), ends_of(connection.fd(), /*dialed=*/true));
  } else {
    entry.why = token.status();
    connection.handshake().refuse(Refusal::kUser);
  }
  connection.continue_greeting();
}

void TcpTransport::decide_as_dialer(Entry& entry) {
  const base::Peer peer = entry.connection->handshake().peer().incarnation;
  if (entry.purpose == Purpose::kRedial && peer != entry.peer) return refuse(entry, Refusal::kStranger);
  const auto known = peers_.find(peer);
  const bool connected = known != peers_.end() && known->second.connection != nullptr;
  if (const Refusal refusal = peering_.refusal(peer, connected, /*dialing=*/false); refusal != Refusal::kNone) return refuse(entry, refusal);
  entry.peer = peer;
  if (needs_token()) return ask_for_token(entry);
  entry.connection->handshake().prove(options_.secret);
  entry.connection->continue_greeting();
}

void TcpTransport::decide_as_listener(Entry& entry) {
  const wire::Introduction& introduction = entry.connection->handshake().peer();
  const base::Peer peer = introduction.incarnation;
  const auto known = peers_.find(peer);
  const bool connected = known != peers_.end() && known->second.connection != nullptr;
  const bool observes = (introduction.capabilities & wire::kObserves) != 0;
  // Our own dial to the same peer may have progressed as far as this one.
  const bool dialing = std::any_of(connections_.begin(), connections_.end(), [&](const auto& item) {
    const Entry& other = item.second;
    return other.peer == peer && (other.purpose == Purpose::kDial || other.purpose == Purpose::kRedial) &&
           other.connection->state() == Connection::State::kGreeting;
  });
  const Refusal refusal = peering_.refusal(peer, connected && (!introduction.resumes || observes), dialing);
  if (refusal != Refusal::kNone) return refuse(entry, refusal);
  entry.peer = peer;
  entry.held = dialing;
  if (dialing) return;
  entry.connection->handshake().accept();
  entry.connection->continue_greeting();
}

void TcpTransport::refuse(Entry& entry, Refusal why) {
  Connection& connection = *entry.connection;
  connection.handshake().refuse(why);
  connection.continue_greeting();
}

/// Decides about a held connection of `peer`: our own dial to it has succeeded or failed.
void TcpTransport::settle_held(base::Peer peer) {
  for (auto& [key, entry] : connections_) {
    if (!entry.held || entry.peer != peer) continue;
    entry.held = false;
    return decide_as_listener(entry);  // which may change connections_
  }
}

void TcpTransport::on_greeted(Connection& connection) {
  Entry& entry = entry_of(connection);
  const base::Peer peer = connection.handshake().peer().incarnation;
  const bool dialed = entry.purpose != Purpose::kAccepted;
  entry.peer = peer;
  entry.deadline = base::kNever;
  if (std::exchange(entry.charged, false)) bucket_.left += 1;
  const Endpoint remote = remote_endpoint(connection.fd());
  const bool is_gone = remote.length == 0;  // the peer has closed the connection meanwhile
  if (connection.tls() == nullptr && !is_gone && !is_loopback(remote)) warn_of_plain(connection.address());
  no_stranger(entry);
  end_attempts(peer, &connection);

  Known& known = peers_[peer];
  if (known.connection != nullptr && known.connection != &connection)
    bury(*known.connection);  // it is broken, and the peer noticed first
  known.connection = &connection;
  known.give_up_at = base::kNever;
  known.trying = false;
  known.dialed = dialed;
  known.greeting = {connection.handshake().peer().capabilities, connection.handshake().key()};
  known.host = host_port(remote).host;
  known.bucket = {options_.member_failures, loop_.now()};
  known.address = dialed ? connection.address() : peer_address(entry);
  known.endpoints.clear();
  if (dialed) {
    known.endpoints.push_back(remote);
  } else if (!connection.handshake().peer().address.empty()) {
    if (const auto parsed = parse_address(known.address); parsed.ok()) {
      if (auto found = resolve(parsed.value(), /*numeric_only=*/true, /*to_listen=*/false); found.ok())
        known.endpoints = std::move(found).value();
    }
  }
  const std::string address = peering_.connected(peer, known.address);
  known.observer = !dialed && (connection.handshake().peer().capabilities & wire::kObserves) != 0;
  base::log_debug("connected with {} ({:016x}){}", address, peer, known.observer ? ", an observer" : "");
  connection.open(*events_, peer);
  known.observer ? events_->on_observer(peer) : events_->on_connected(peer, address);
  settle_held(peer);
}

/// The address where an accepted peer listens, or, if it does not listen, its remote address. If a peer on another
/// machine claims to listen on loopback, or on all interfaces, the result has the remote host.
std::string TcpTransport::peer_address(const Entry& entry) const {
  const std::string& said = entry.connection->handshake().peer().address;
  const auto parsed = parse_address(said);
  if (said.empty() || !parsed.ok()) return entry.connection->address();
  const std::string from = host_port(remote_endpoint(entry.connection->fd())).host;
  const bool elsewhere = from != host_port(local_endpoint(entry.connection->fd())).host;
  const bool useless = is_wildcard(parsed.value().host) || (elsewhere && is_loopback_text(parsed.value().host) && !is_loopback_text(from));
  return useless ? to_text({from, parsed.value().port}) : said;
}

void TcpTransport::on_failed(Connection& connection, const base::Status& reason, bool refused) {
  Entry& entry = entry_of(connection);
  const base::Status why = entry.why.ok() ? reason : entry.why;
  const Purpose purpose = entry.purpose;
  const base::Peer peer = entry.peer;
  const Refusal refusal = connection.greeting() ? connection.handshake().refusal() : Refusal::kNone;
  const base::Peer met = connection.greeting() ? connection.handshake().peer().incarnation : base::kNobody;
  const std::string address = connection.address();
  if (connection.state() == Connection::State::kDead) {
    bury(connection);
  } else {
    entry.peer = base::kNobody;
    entry.deadline = loop_.now() + kLinger;
  }
  if (stopping_) return;
  switch (purpose) {
    case Purpose::kAccepted:
      if (refusal == Refusal::kTls || refusal == Refusal::kCertificate) warn_of_stranger(why);
      return log_stranger(why);
    case Purpose::kDial:
      if (refusal != Refusal::kDuplicate) {
        fail_dial(address, why);
      } else if (const auto known = peers_.find(met); known != peers_.end() && known->second.connection != nullptr) {
        events_->on_connected(met, address);
      } else {
        peering_.await(met, address);
        need_tick();
      }
      break;
    case Purpose::kRedial:
      if (refusal == Refusal::kDuplicate) {
        if (const auto known = peers_.find(peer); known != peers_.end()) known->second.trying = false;
      } else {
        mend_failed(peer, why, refused ? Mending::kEnded : refusal != Refusal::kNone ? Mending::kRefused : Mending::kMayYet);
      }
      break;
    case Purpose::kProbe:
      mend_failed(peer, why, refused ? Mending::kEnded : Mending::kMayYet);
      break;
  }
  settle_held(met);
}

/// A wrong setting of a member is worth a warning, but strangers must not fill the log.
void TcpTransport::warn_of_stranger(const base::Status& why) {
  constexpr Nanos kBetween = std::chrono::seconds(10);
  if (warned_at_ != Nanos{0} && loop_.now() - warned_at_ < kBetween) return;
  warned_at_ = loop_.now();
  base::log_warn("rejected a connection: {}", why.text());
}

void TcpTransport::log_stranger(const base::Status& why) {
  ++turned_away_;
  if (!base::logs(MV_LOG_DEBUG)) return;
  if (loop_.now() - log_window_ > std::chrono::seconds(1)) {
    log_window_ = loop_.now();
    logged_ = 0;
  }
  if (++logged_ <= 10) base::log_debug("rejected a connection: {}", why.text());
}

}  // namespace mv::transport
