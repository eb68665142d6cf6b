#pragma once
// The transport over TCP: any number of peers, each with one authenticated connection (wire/hello.hpp).
//
// When a connection breaks without a goodbye, the side that dialed dials again at once and then every `retry`; the side that
// listened waits, and looks meanwhile whether the peer's own port still answers. A refused connection proves that the
// process is gone. Either side gives up after `reconnect_grace`. A peer that is lost (see TcpOptions::fences_lost) or closed
// never comes back in that life, unless many others have gone since (TcpOptions::most_fenced).
//
// Without a secret, only loopback is listened on and dialed, and processes of the same user prove that they are by a token
// (transport/token.hpp); the hello is then bound to the two ends of the connection, so that nobody else can relay it.
//
// Strangers, accepted connections that have not finished their hello, are bounded in number, and so is what they can make this
// node compute. Where there is no room for another one, one from the address that most come from goes, of those the one that has
// made no step for longest: a crowd pushes itself out. Whoever says that it mends a connection of a peer that this node knows, and
// comes from where that is, goes last, and does not have to wait for others' proofs.
//
// When two nodes dial each other at once, the dial of the larger incarnation is the one that stays.

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/fenced_peers.hpp"
#include "transport/listener.hpp"
#include "transport/tcp/connection.hpp"
#include "transport/token.hpp"
#include "transport/transport.hpp"

namespace mv::transport {

struct TcpOptions {
  base::Peer self = base::kNobody;  ///< this node's incarnation
  std::string secret;               ///< empty: every process of this user on this machine that has none either
  base::Nanos hello_timeout = std::chrono::seconds(5);
  base::Nanos reconnect_grace = std::chrono::seconds(1);
  base::Nanos retry = std::chrono::milliseconds(50);
  size_t max_strangers = 512;  ///< accepted connections that have not finished their hello
  /// So many hellos may fail in a row, and afterwards a second, before those of peers that are not known yet have to wait: each costs
  /// about 150 µs of computing, and is one guess at the secret. Those that succeed don't count.
  double failures = 1024, failures_per_second = 256;
  /// The same for each peer that is known, of hellos that come from where it is and say that they mend its connection.
  double member_failures = 16, member_failures_per_second = 4;
  size_t most_fenced = FencedPeers::kMost;  ///< the lives that never come back: the newest ones
  bool fences_lost = true;  ///< a peer that was lost never comes back in that life; else only one that was closed
  bool observes = false;            ///< this node is no member: see wire::kObserves
  uint16_t version_min = wire::kVersionMin, version_max = wire::kVersionMax;
};

class TcpTransport final : public Transport, private ConnectionEvents {
 public:
  TcpTransport(Loop& loop, TcpOptions options);
  ~TcpTransport() override;

  void attach(base::LinkEvents& events) override { events_ = &events; }
  base::Result<std::string> listen(const std::string& address) override;
  base::Result<std::string> adopt(int listening_fd) override;
  /// What peers are told about where this node listens, instead of the first address of listen().
  void introduce_as(const std::string& address) { own_address_ = address; }
  /// Connections that did not prove to be of this cluster, so far.
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
  /// How many proofs may still fail.
  struct Ration {
    double left;
    Nanos at{0};
    bool take(Nanos now, double most, double per_second);
  };
  /// A connection and what it is for.
  struct Entry {
    std::unique_ptr<Connection> connection;
    Purpose purpose;
    base::Peer peer = base::kNobody;  // kRedial, kProbe: whose; else once it is open
    Nanos deadline = base::kNever;
    bool held = false;      // kAccepted: decided when our own dial to the same peer is
    bool stranger = false;  // counted in strangers_
    uint64_t number = 0;    // of a stranger, in the order of arrival
    std::string host;       // of a stranger, counted in crowds_
    bool waits = false;     // kAccepted: its proof is put off
    bool charged = false;   // its proof is counted as one that may fail
    std::unique_ptr<TokenQuery> query;
    base::Status why;       // of its failure, where the handshake can't know
  };
  /// A peer that is connected, or whose broken connection is being mended.
  struct Known {
    std::string address;              // where it listens, else where it came from
    bool dialed = false;              // by us, at `address`
    std::vector<Endpoint> endpoints;  // to dial or probe; empty: it does not listen
    Connection* connection = nullptr;
    Nanos give_up_at = base::kNever;  // while broken
    bool trying = false;              // a kRedial or kProbe is under way
    bool observer = false;            // it has called us, and is not called back
    std::string host;                 // where its connection comes from
    Ration ration{0};                 // of proofs in its name
    std::string why;                  // of the break
  };
  struct Lookup;

  ConnectionEvents& as_owner() { return *this; }
  void on_stream(Connection& connection) override;
  void on_deciding(Connection& connection) override;
  void on_greeted(Connection& connection) override;
  void on_failed(Connection& connection, const base::Status& why, bool refused) override;
  void on_ended(Connection& connection, End how, const base::Status& why) override;

  base::Result<std::string> add_listener(Fd fd);
  void on_accept(Fd fd);
  void start_dial(const std::string& address);
  void dial_endpoints(const std::string& address, std::vector<Endpoint> endpoints);
  Entry& add_connection(std::unique_ptr<Connection> connection, Purpose purpose, Nanos deadline);
  Entry& entry_of(const Connection& connection) { return connections_.at(&connection); }
  void bury(Connection& connection);
  wire::Handshake make_handshake(wire::Handshake::Side side, bool resumes) const;

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
  void mend_failed(base::Peer peer, const base::Status& why, bool gone);
  void end_attempts(base::Peer peer, const Connection* but);
  void lose(base::Peer peer, const base::Status& why);
  void fail_dial(const std::string& address, const base::Status& why);
  void deduplicated(const std::string& address, base::Peer peer);

  void need_tick();
  void tick();
  void tick_connections();
  void tick_peers();
  bool nothing_to_watch() const;
  void log_stranger(const base::Status& why);

  Loop& loop_;
  const TcpOptions options_;
  base::LinkEvents* events_ = nullptr;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<TokenDesk>> desks_;  // of each listener, without a secret
  std::string token_;
  std::string own_address_;
  std::unordered_map<const Connection*, Entry> connections_;
  std::vector<std::unique_ptr<Connection>> dead_;  // freed when no callback of theirs can be on the stack
  std::vector<std::unique_ptr<TokenQuery>> dead_queries_;  // the same
  std::unordered_map<base::Peer, Known> peers_;
  FencedPeers gone_{options_.most_fenced};                             // lost or closed
  std::map<base::Peer, std::pair<std::string, Nanos>> awaited_;  // our dial gave way to the peer's: address, until when
  std::vector<std::string>
      to_dial_;  // started by flush(): a dial may fail at once, and must not report from within dial()
  std::vector<Connection*> unflushed_;
  std::vector<Lookup*> lookups_;
  size_t strangers_ = 0;
  uint64_t arrivals_ = 0;
  std::unordered_map<std::string, size_t> crowds_;  // of strangers, by where they come from
  Ration ration_;                                   // of strangers' proofs
  Timer timer_;
  bool stopping_ = false;
  std::function<void()> stopped_;
  Nanos log_window_{0};
  int logged_ = 0;
  uint64_t turned_away_ = 0;
};

}  // namespace mv::transport
