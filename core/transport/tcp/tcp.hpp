#pragma once
// The transport over TCP: any number of peers, each with one authenticated connection (wire/handshake.hpp).
//
// When a connection breaks without a goodbye, the side that dialed reconnects at once and then every `retry`. The side
// that listened waits, and probes meanwhile whether the peer's own port still answers. A refused connection proves that
// the process has ended. Either side gives up after `reconnect_grace`. A peer that is lost (see
// TcpOptions::fences_lost) or closed never returns in that life, unless many others have been fenced since
// (TcpOptions::most_fenced).
//
// Without a secret, the transport listens on loopback and dials loopback only. Processes prove with a token that they
// belong to the same user (transport/token.hpp). The hello is then bound to both addresses of the connection, so a
// third process cannot relay it.
//
// Strangers are accepted connections that have not finished their hello. Their number is bounded, and so is the
// computation that they can cause. If a new stranger finds no room, one stranger is dropped: from the host with the
// most strangers, the one whose hello has made no progress for the longest time. A crowd therefore displaces its own
// members. A stranger that claims to resume the connection of a known peer, and comes from that peer's host, is dropped
// last, and its proof does not wait for those of others.
//
// Connections are encrypted according to TcpOptions::tls. The hello decides it for each of them (wire::Tls).

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/listener.hpp"
#include "transport/peering/peering.hpp"
#include "transport/tcp/connection.hpp"
#include "transport/token.hpp"
#include "transport/transport.hpp"

namespace mv::transport {

struct TcpOptions : HelloOptions {
  TcpOptions() : HelloOptions(512) {}

  base::Nanos reconnect_grace = std::chrono::seconds(1);
  base::Nanos retry = std::chrono::milliseconds(50);
  /// The token bucket for failing hellos: a burst, and a rate. When it is empty, hellos of unknown peers wait. Each
  /// hello costs about 150 µs of computation, and is one guess at the secret. Hellos that succeed do not count.
  double failures = 1024, failures_per_second = 256;
  /// The same for each known peer, for hellos that come from its host and claim to resume its connection.
  double member_failures = 16, member_failures_per_second = 4;
  size_t most_fenced = FencedPeers::kMost;  ///< number of fenced lives to remember, the newest ones
  bool fences_lost = true;  ///< fences lost peers for that life; otherwise only closed ones
  TlsSettings tls;
  bool observes = false;            ///< this node is not a member: see wire::kObserves
  uint64_t capabilities = 0;        ///< further bits for the hello: see wire::kHasUcx
};

class TcpTransport final : public Transport, private ConnectionEvents, private BusySockets {
 public:
  TcpTransport(Loop& loop, TcpOptions options);
  ~TcpTransport() override;

  void attach(base::LinkEvents& events) override { events_ = &events; }
  base::Result<std::string> listen(const std::string& address) override;
  base::Result<std::string> adopt(int listening_fd) override;
  /// The address that this node announces to peers, instead of the first address of listen().
  void introduce_as(const std::string& address) { own_address_ = address; }
  /// Loads what the settings demand. Otherwise this happens when it is first needed: beyond loopback, or if a peer asks.
  /// MV_ENOSYS, MV_EINVAL.
  base::Status prepare_tls();
  /// The cipher of the connection with `peer`, for example "TLS_AES_128_GCM_SHA256"; empty if it is not encrypted.
  std::string cipher_of(base::Peer peer) const;
  /// What the hello with a connected peer has left.
  struct Greeting {
    uint64_t capabilities = 0;
    wire::Handshake::Key key{};  ///< that only the two sides know, new with each connection
    bool operator==(const Greeting&) const = default;
  };
  /// nullopt without a connection.
  std::optional<Greeting> greeting_of(base::Peer peer) const;
  /// The time at which this node's certificate expires, in seconds since 1970; nullopt without one.
  std::optional<int64_t> certificate_expires();
  /// The number of connections so far that did not prove that they belong to this cluster.
  uint64_t turned_away() const { return turned_away_; }
  void dial(const std::string& address) override;
  void send(base::Peer to, const base::Frame& frame) override;
  void close(base::Peer peer) override;
  void flush() override;
  void stop(std::function<void()> stopped) override;
  void cut(base::Peer peer) override;

 private:
  using Nanos = base::Nanos;
  enum class Purpose { kAccepted, kDial, kRedial, kProbe };
  /// A token bucket: how many proofs may still fail.
  struct TokenBucket {
    double left;
    Nanos at{0};
    bool take(Nanos now, double most, double per_second);
  };
  /// A connection and its purpose.
  struct Entry {
    std::unique_ptr<Connection> connection;
    Purpose purpose;
    base::Peer peer = base::kNobody;  // kRedial, kProbe: set from the start; else by the hello
    Nanos deadline = base::kNever;
    bool held = false;      // kAccepted: waits for the result of our own dial to that peer
    bool stranger = false;  // counted in strangers_
    uint64_t number = 0;    // of a stranger: its order of arrival
    std::string host;       // of a stranger: its key in crowds_
    bool waits = false;     // kAccepted: its proof is postponed
    bool charged = false;   // its proof is charged to bucket_, and refunded on success
    std::unique_ptr<TokenQuery> query;
    base::Status why;       // of its failure, if the handshake can't know the reason
  };
  /// A peer that is connected, or is expected to reconnect.
  struct Known {
    std::string address;              // where it listens, or else its remote address
    bool dialed = false;              // by us, at `address`
    std::vector<Endpoint> endpoints;  // to dial or probe; empty: it does not listen
    Connection* connection = nullptr;
    Nanos give_up_at = base::kNever;  // deadline while the connection is broken
    bool trying = false;              // a kRedial or kProbe is in progress
    bool observer = false;            // it has dialed us, and is never dialed
    std::string host;                 // the remote host of its connection
    TokenBucket bucket{0};            // for proofs that claim to be from it
    std::string why;                  // the reason of the break
    Greeting greeting;
  };
  struct Lookup;
  /// A connection that has received something, and the number of spins since.
  struct Busy {
    Connection* connection;
    int spins;
  };
  static constexpr size_t kMostBusy = 4;
  static constexpr int kMostIdleSpins = 8;

  ConnectionEvents& as_owner() { return *this; }
  void on_stream(Connection& connection) override;
  void on_deciding(Connection& connection) override;
  void on_greeted(Connection& connection) override;
  void on_failed(Connection& connection, const base::Status& why, bool refused) override;
  void on_received(Connection& connection) override;
  void on_ended(Connection& connection, End how, const base::Status& why) override;
  bool begin_reading() override;
  bool read() override;

  base::Result<std::string> add_listener(Fd fd);
  void on_accept(Fd fd);
  void start_dial(const std::string& address);
  void dial_endpoints(const std::string& address, std::vector<Endpoint> endpoints);
  Entry& add_connection(std::unique_ptr<Connection> connection, Purpose purpose, Nanos deadline);
  Entry& entry_of(const Connection& connection) { return connections_.at(&connection); }
  void bury(Connection& connection);
  wire::Handshake make_handshake(wire::Handshake::Side side, bool resumes, const Connection& connection) const;
  bool may_prove(Entry& entry);
  void encrypt(Entry& entry);
  bool needs_token() const { return options_.secret.empty() && options_.tls.mode != TlsMode::kMutual; }
  base::Status check_reach(const std::string& where, const Endpoint& endpoint);
  void warn_of_plain(const std::string& address);
  bool is_named(const Entry& entry) const;

  void no_stranger(Entry& entry);
  void make_room();
  Known* expected(const Entry& entry);
  void prove_as_listener(Entry& entry);
  void ask_for_token(Entry& entry);
  void got_token(Entry& entry, const base::Result<std::string>& token);
  void tick_proofs();

  void decide_as_dialer(Entry& entry);
  void decide_as_listener(Entry& entry);
  void refuse(Entry& entry, wire::Refusal why);
  void settle_held(base::Peer peer);
  std::string peer_address(const Entry& entry) const;

  void broke(base::Peer peer, Known& known, const base::Status& why);
  void try_to_mend(base::Peer peer, Known& known);
  /// After a failed attempt to restore a connection: nobody listens there any more, the peer refused it, or another
  /// attempt may succeed.
  enum class Mending { kEnded, kRefused, kMayYet };
  void mend_failed(base::Peer peer, const base::Status& why, Mending how);
  void end_attempts(base::Peer peer, const Connection* but);
  void lose(base::Peer peer, const base::Status& why);
  void fail_dial(const std::string& address, const base::Status& why);

  void need_tick();
  void tick();
  void tick_connections();
  void tick_peers();
  bool nothing_to_watch() const;
  void log_stranger(const base::Status& why);
  void warn_of_stranger(const base::Status& why);

  Loop& loop_;
  const TcpOptions options_;
  base::LinkEvents* events_ = nullptr;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<TokenDesk>> desks_;  // one for each listener, without a secret
  std::string token_;
  std::string own_address_;
  std::unordered_map<const Connection*, Entry> connections_;
  std::vector<std::unique_ptr<Connection>> dead_;  // freed when none of their callbacks can be on the stack
  std::vector<std::unique_ptr<TokenQuery>> dead_queries_;  // likewise
  std::unordered_map<base::Peer, Known> peers_;
  Peering peering_;
  std::vector<std::string>
      to_dial_;  // started by flush(): a dial may fail at once, and must not report from within dial()
  std::vector<Connection*> unflushed_;
  std::vector<Busy> busy_;
  std::vector<Lookup*> lookups_;
  size_t strangers_ = 0;
  uint64_t arrivals_ = 0;
  std::unordered_map<std::string, size_t> crowds_;  // number of strangers, by host
  TokenBucket bucket_;                              // for strangers' proofs
  Timer timer_;
  std::shared_ptr<TlsContext> tls_;
  std::string told_of_tls_;  // the last warning about it
  Nanos warned_at_{0};
  bool stopping_ = false;
  std::function<void()> stopped_;
  Nanos log_window_{0};
  int logged_ = 0;
  uint64_t turned_away_ = 0;
};

}  // namespace mv::transport
