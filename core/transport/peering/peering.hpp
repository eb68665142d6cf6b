#pragma once
// What all transports that connect by a hello (wire/handshake.hpp) know about peers, apart from their connections: how this
// node introduces itself, whom it refuses, and which dials have yielded to the peer's own.
//
// When two nodes dial each other at once, the dial of the larger incarnation wins. The smaller one's dial is refused as a
// duplicate, and its node then awaits the connection that the larger one makes.

#include <functional>
#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "transport/peering/fenced_peers.hpp"
#include "wire/handshake.hpp"

namespace mv::transport {

/// The options for hellos, of every such transport.
struct HelloOptions {
  explicit HelloOptions(size_t strangers) : max_strangers(strangers) {}

  base::Peer self = base::kNobody;  ///< this node's incarnation
  std::string secret;               ///< empty: accepts processes of this user, or job, on this machine that have none either
  base::Nanos hello_timeout = std::chrono::seconds(5);
  size_t max_strangers;  ///< connections to this node that have not finished their hello
  uint16_t version_min = wire::kVersionMin, version_max = wire::kVersionMax;
};

/// Loop thread only.
class Peering {
 public:
  Peering(const base::Clock& clock, const HelloOptions& options, size_t most_fenced = FencedPeers::kMost);

  /// One side of a hello. `introduction` has what the transport adds: an address, capabilities.
  wire::Handshake handshake(wire::Handshake::Side side, wire::Introduction introduction) const;
  /// The peer, in that life, is refused from now on.
  void fence(base::Peer peer) { fenced_.add(peer); }
  /// The same, for a peer that this node has closed: nothing is awaited of it.
  void close(base::Peer peer);
  bool is_fenced(base::Peer peer) const { return fenced_.contains(peer); }
  /// Why a peer whose hello has arrived is refused, or kNone.
  /// @param dialing  whether our own dial to it has got as far; its hello has to wait then for the end of that dial
  wire::Refusal refusal(base::Peer peer, bool connected, bool dialing) const;

  /// Our dial to `address` has yielded to the peer's, which has to succeed in time.
  void await(base::Peer peer, const std::string& address);
  bool awaits_any() const { return !awaited_.empty(); }
  /// The peer has connected. Returns the address under which it was awaited, or `otherwise`.
  std::string connected(base::Peer peer, std::string otherwise);
  /// Reports the dials whose peer did not connect in time.
  using DialFailed = std::function<void(const std::string& address, const base::Status& why)>;
  void tick(const DialFailed& failed);
  void stop() { awaited_.clear(); }
  /// The error of a hello that has taken longer than HelloOptions::hello_timeout.
  base::Status too_slow(const std::string& address) const;

 private:
  struct Awaited {
    std::string address;
    base::Nanos deadline;
  };

  const base::Clock& clock_;
  const HelloOptions options_;
  FencedPeers fenced_;
  std::map<base::Peer, Awaited> awaited_;
};

}  // namespace mv::transport
