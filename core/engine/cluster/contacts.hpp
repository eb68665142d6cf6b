#pragma once
// The peers that this node has heard of: their connections, and when they last spoke.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/rpc/client.hpp"

namespace mv::cluster {

struct Contact {
  bool connected = false;
  std::string address;  ///< the peer's address as the transport sees it
  uint64_t epoch = 0;     ///< of the newest view that the peer is known to have
  uint64_t told = 0;      ///< at the master: of the newest view that was sent since it is connected. Messages keep their order, unless they are lost
  std::string waits;      ///< at the master: the call in which the peer waits, by its last Ping
  bool spoke = false;     ///< sent a message since the last beat
  base::Nanos heard{0};
  base::Nanos silent_until = base::kNever;  ///< when it spoke again after more than half of the heartbeat's time-out; kNever: it has not been silent
  bool spoke_lately = false;  ///< sent a message since note_silence()
  base::Nanos noted{0};       ///< when note_silence() last found such a message
  bool wanted = false;    ///< see Cluster::want()
  bool dialed = false;    ///< by want(): Connector::dial_failed() repeats it
  uint32_t failed_dials = 0;  ///< since it was last connected
  base::Nanos dials_fail_since = base::kNever;  ///< likewise; kNever: no dial has failed
  bool told_of_failed_dials = false;            ///< in the log
  // for peers that are not members:
  base::Nanos met{0};     ///< when it first connected
  rpc::Seq dropped = 0;   ///< its first dropped request, 0: none
  uint32_t messages = 0;  ///< messages since the last beat
  // for all peers:
  uint64_t question = 0;  ///< number of the unanswered ping of Contacts::question(); 0: none
  base::Nanos asked{0}, round_trip = base::kNever;
};

class Contacts {
 public:
  explicit Contacts(const base::Clock& clock) : clock_(clock) {}

  Contact& operator[](base::Peer peer) { return all_[peer]; }
  /// nullptr for a peer that this node has not heard of.
  Contact* find(base::Peer peer);
  const Contact* find(base::Peer peer) const;
  bool is_connected(base::Peer peer) const;
  bool is_wanted(base::Peer peer) const;
  void forget(base::Peer peer) { all_.erase(peer); }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

  Contact& connected(base::Peer peer, const std::string& address);
  /// A message, or a part of one, came from this peer.
  void heard(base::Peer peer);
  /// Time since the last message from a peer, at the resolution of note_silence(); nullopt if it is not connected.
  std::optional<base::Nanos> silence(base::Peer peer) const;
  void note_silence();

  /// Begins a round of pings that ask for an answer, one to each connected peer. Returns its number.
  uint64_t ask();
  void answered(Contact& contact, uint64_t question) const;
  size_t unanswered() const;
  std::optional<base::Nanos> round_trip(base::Peer peer) const;

 private:
  const base::Clock& clock_;
  std::map<base::Peer, Contact> all_;
  uint64_t questions_ = 0;
};

}  // namespace mv::cluster
