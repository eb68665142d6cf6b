// TcpTransport: which connections are encrypted, and how; what the hellos have left.

#include "base/log.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/tcp.hpp"

namespace mv::transport {

using wire::Handshake;
using wire::Refusal;

base::Status TcpTransport::prepare_tls() {
  if (tls_ != nullptr) return {};
  auto made = make_tls(options_.tls.mode == TlsMode::kMutual ? options_.tls.files : TlsFiles());
  if (!made.ok()) return made.status();
  tls_ = std::move(made).value();
  return {};
}

void TcpTransport::encrypt(Entry& entry) {
  Connection& connection = *entry.connection;
  const Handshake& handshake = connection.handshake();
  const bool dials = handshake.side() == Handshake::Side::kDialer, mutual = handshake.tls() == wire::Tls::kMutual;
  if (mutual && !dials && !may_prove(entry)) return;
  const auto stream = [&]() -> base::Result<std::unique_ptr<TlsStream>> {
    if (const base::Status status = prepare_tls(); !status.ok()) return status;
    if (!mutual) return tls_->psk(dials, handshake.key());
    const auto listener = parse_address(connection.address());
    auto made = tls_->mutual(dials, listener.ok() ? listener.value().host : "");
    if (const std::string trouble = tls_->trouble().text(); trouble != told_of_tls_) {
      told_of_tls_ = trouble;
      if (!trouble.empty()) base::log_warn("the certificates that were read before remain in use: {}", trouble);
    }
    return made;
  };
  auto made = stream();
  if (made.ok()) return connection.encrypt(std::move(made).value());
  entry.why = made.status();
  refuse(entry, Refusal::kTls);
}

/// Whether an accepted peer's certificate is valid for the address that it introduces itself by. One that does not
/// listen, such as an observer, has none.
bool TcpTransport::is_named(const Entry& entry) const {
  if (entry.connection->handshake().peer().address.empty()) return true;
  const auto address = parse_address(peer_address(entry));
  return address.ok() && entry.connection->tls()->is_named(address.value().host);
}

std::optional<int64_t> TcpTransport::certificate_expires() {
  if (options_.tls.mode != TlsMode::kMutual || !prepare_tls().ok()) return std::nullopt;
  const auto expires = tls_->expires();
  return expires.ok() ? std::optional(expires.value()) : std::nullopt;
}

std::string TcpTransport::cipher_of(base::Peer peer) const {
  const auto known = peers_.find(peer);
  const Connection* const connection = known != peers_.end() ? known->second.connection : nullptr;
  return connection != nullptr && connection->tls() != nullptr ? connection->tls()->cipher() : "";
}

std::optional<TcpTransport::Greeting> TcpTransport::greeting_of(base::Peer peer) const {
  const auto known = peers_.find(peer);
  if (known == peers_.end() || known->second.connection == nullptr) return std::nullopt;
  return known->second.greeting;
}

void TcpTransport::warn_of_plain(const std::string& address) {
  static constexpr const char* kWarning = "tls=off";
  if (std::exchange(told_of_tls_, kWarning) == kWarning) return;
  base::log_warn(
      "tls=off: what this process sends and receives beyond this machine ({}) can be read and changed on the network; "
      "unset tls "
      "(POLYVERSO_TLS) in all processes, unless the network itself is encrypted",
      address);
}

}  // namespace mv::transport
