#pragma once
// The gossip engine of one node: fetches a peer's newest snapshot, or exchanges one with it, and serves its own.
// Messages and time go in, messages and completions come out; it knows nothing of sockets or threads.
//
// A fetch tries one peer after the other until one has sent a whole snapshot, all have failed, or Config::timeout has
// passed. A peer that is silent for a third of the time-out is given up, which leaves time for another. The last peer
// to ask may take the rest of the time-out. With Exchange::kSymmetric both sides fetch, in a pair exchange, and this
// also limits the last peer's silence: see pair_exchange.hpp.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/gossip/coding.hpp"
#include "engine/gossip/config.hpp"
#include "engine/gossip/pair_exchange.hpp"
#include "engine/gossip/peer_book.hpp"
#include "engine/gossip/receive_buffer.hpp"
#include "engine/gossip/serving.hpp"
#include "engine/gossip/snapshot.hpp"
#include "wire/frame.hpp"

namespace mv::gossip {

/// The result of a fetch.
struct FetchResult {
  std::string peer;  ///< empty: no peer had a snapshot
  std::string why;   ///< the reason, if `peer` is empty
  /// This node's newest version when the fetch began; in a symmetric exchange, the version that the peer has received.
  std::shared_ptr<SnapshotReader> own;
  uint64_t own_version = 0;
};

/// A node's gossip. Loop thread only, except for the results of result() and receive_buffer() between a completion and
/// the next fetch().
class Gossip final : public base::LinkEvents {
 public:
  struct Hooks {
    /// A fetch has ended.
    std::function<void()> on_done;
    /// The snapshots of this incarnation of a peer if its memory is mapped; null if they must be requested by messages.
    /// May be empty.
    std::function<std::shared_ptr<SnapshotReader>(base::Peer)> mapped;
    /// Requests a call of go_on() soon, after all other pending work.
    std::function<void()> on_more;
    /// The state of the node for observers, as JSON if true, else as text. May be empty.
    std::function<std::string(bool)> state_text;
  };
  Gossip(const base::Clock& clock, base::Link& link, const Config& config, Node self, uint64_t seed, Publisher& own, Hooks hooks);

  base::Status add_peer(const Node& node);
  base::Status remove_peer(const std::string& name);
  const PeerBook& peers() const { return peers_; }
  base::Nanos now() const { return clock_.now(); }
  const Serving& serving() const { return serving_; }
  const ExchangeTally& exchanges() const { return tally_; }
  /// The number of peers that have proposed an exchange and wait for this node's next fetch.
  size_t proposals() const { return held_.size(); }
  bool is_waiting(const PeerEntry& peer) const { return held_.contains(peer.life); }
  /// Encoded bytes of snapshots received in messages.
  uint64_t fetched_bytes() const { return fetched_bytes_; }
  /// Notes the disagreement with a peer's model, measured when it was averaged with.
  void note_disagreement(const std::string& peer, double disagreement);

  /// Begins a fetch; none may be running. `round` counts this node's updates; `own` are the arrays that it has
  /// published.
  void fetch(uint64_t round, std::vector<ArraySpec> own);
  bool fetching() const { return fetching_; }
  const FetchResult& result() const { return result_; }
  ReceiveBuffer& receive_buffer() { return receive_buffer_; }
  /// Copies the next piece of a peer's mapped memory; see Hooks::on_more.
  void go_on();

  base::Nanos next_deadline() const;
  void tick();

  void on_connected(base::Peer peer, const std::string& address) override;
  void on_dial_failed(const std::string& address, const base::Status& why) override;
  void on_lost(base::Peer peer, const base::Status& why) override;
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override;
  base::SinkRef on_header(base::Peer from, const wire::Message& message, size_t bytes) override;
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override;

 private:
  using Body = wire::Body;
  struct Request {
    uint64_t first, count;
    base::SinkRef sink;  ///< once its header has arrived
  };
  /// The attempt to fetch from one peer.
  struct Attempt {
    std::string peer;
    base::Nanos silent_since;
    bool last = false;       ///< no other peer is left to ask
    bool described = false;  ///< the receive buffer has begun
    uint64_t asked = 0;      ///< bytes requested of the version in the receive buffer
    int restarts = 0;
    uint64_t version = 0;                     ///< the only one wanted; 0: the newest
    std::map<uint64_t, Request> pieces;         ///< by request number
    uint64_t heard = 0;                       ///< bytes received at the last check for silence
    std::shared_ptr<SnapshotReader> mapping;  ///< instead of requests
    std::optional<PairExchange> exchange;                 ///< if it is symmetric
  };
  enum class Fault { kSilent, kRefused };

  void try_next();
  void begin_asking(PeerEntry& peer);
  void begin_reading(PeerEntry& peer);
  void start_over();
  void ask(base::Peer to, uint64_t version, uint64_t first, uint64_t count);
  void ask_more(base::Peer to);
  bool begin_receive_buffer(Description description);
  void begin_copying();
  void want_more();
  void coded_piece_arrived(uint64_t first, uint64_t count, std::span<const std::byte> encoded);
  base::Status unpack(uint64_t first, uint64_t count, std::span<const std::byte> encoded);
  void piece_arrived(uint64_t first, uint64_t count);
  void piece_checked(uint64_t count, const base::Status& status);
  void succeed();
  base::SinkRef place(base::Peer from, const wire::Fetched& fetched, size_t bytes);
  void take_absence(base::Peer from, const wire::Fetched& fetched);
  void drop_pieces();
  void fail(const std::string& why, Fault fault);
  void skip(const std::string& why);
  void finish(std::string peer, std::string why);
  void answer_inquire(base::Peer to, const wire::Inquire& inquire);
  void run_out();
  base::Nanos silence_ends() const;
  bool hears_more();
  // Symmetric exchanges: pair_exchange.cpp.
  bool symmetric() const { return config_.exchange == Exchange::kSymmetric; }
  void propose(PeerEntry& peer);
  bool accept_held();
  void accept(PeerEntry& peer, base::Peer life, const Proposal& proposal);
  void settle_proposal(base::Peer from);
  void forget(base::Peer life);
  void say(base::Peer to, uint64_t number, wire::Word word, bool proposer);
  void decline(base::Peer to, uint64_t number, bool unfit, const std::string& why);
  void withdraw();
  void have_whole();
  void commit();
  void exchange_again(PeerEntry& peer);
  PairExchange* exchange_with(base::Peer from, const wire::Exchange& said);
  void on_exchange(base::Peer from, const wire::Exchange& said);
  void on_propose(base::Peer from, const wire::Exchange& said);
  void on_agree(base::Peer from, const wire::Exchange& said);
  void on_ready(base::Peer from, const wire::Exchange& said);
  void on_commit(base::Peer from, const wire::Exchange& said);
  void on_withdraw(base::Peer from, const wire::Exchange& said);

  PeerEntry* attempted() { return attempt_ ? peers_.find(attempt_->peer) : nullptr; }

  const base::Clock& clock_;
  base::Link& link_;
  const Config config_;
  const Hooks hooks_;
  PeerBook peers_;
  Publisher& own_;
  Serving serving_;
  Rng rng_;
  Coding coding_;
  wire::FrameBuilder builder_;

  bool fetching_ = false;
  base::Nanos deadline_ = base::kNever;
  uint64_t round_ = 0;
  std::vector<ArraySpec> own_parts_;
  std::set<std::string> tried_;
  std::string last_failure_;
  std::optional<Attempt> attempt_;
  ReceiveBuffer receive_buffer_;
  FetchResult result_;
  std::shared_ptr<SnapshotReader> own_reader_;  ///< of the version that takes part in an exchange
  uint64_t own_version_ = 0;
  std::map<base::Peer, Proposal> held_;         ///< by peer: they wait for this node's next fetch
  std::map<base::Peer, uint64_t> committed_;    ///< by peer: the last exchange that this node proposed and committed
  std::map<base::Peer, uint64_t> accepted_;     ///< by peer: the last exchange that it proposed and committed
  std::map<base::Peer, uint64_t> agreed_;       ///< by peer: its last proposal to which this node has agreed
  std::map<base::Peer, uint64_t> unsettled_;    ///< by peer: the last of these that this node gave up without knowing the peer's decision
  std::map<std::string, base::Peer> connected_;  ///< by address, also those that are no peers
  ExchangeTally tally_;
  uint64_t fetched_bytes_ = 0;
  uint64_t questions_ = 0;
  bool somebody_failed_ = false;  ///< in this fetch
  bool told_alone_ = false;
  bool more_wanted_ = false;
};

}  // namespace mv::gossip
