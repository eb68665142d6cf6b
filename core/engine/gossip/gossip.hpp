#pragma once
// One node's gossip: fetches a peer's newest snapshot, or exchanges one with it, and serves its own. Messages and time in, messages and
// completions out; knows nothing of sockets or threads.
//
// A fetch tries one peer after the other until one has answered whole, all have failed, or Config::timeout is used up. One that
// says nothing for a third of it is given up, so that there is time for another; where there is no other, or not that much left, it may take
// the rest. With Exchange::kSymmetric both sides fetch, as a pair exchange: see exchange.hpp.

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
#include "engine/gossip/peers.hpp"
#include "engine/gossip/receive_buffer.hpp"
#include "engine/gossip/serving.hpp"
#include "engine/gossip/snapshot.hpp"
#include "wire/frame.hpp"

namespace mv::gossip {

/// What a fetch came to.
struct FetchResult {
  std::string peer;  ///< empty: nobody had anything
  std::string why;   ///< then
  /// This node's newest version when the fetch began; in a symmetric exchange what the peer has got.
  std::shared_ptr<SnapshotReader> own;
  uint64_t own_version = 0;
};

/// Loop thread only, but for what result() and receive_buffer() give between a completion and the next fetch().
class Gossip final : public base::LinkEvents {
 public:
  struct Hooks {
    /// A fetch has come to its end.
    std::function<void()> on_done;
    /// The snapshots of this life of a peer, where its memory is mapped; else null, and they are asked for by messages. May be empty.
    std::function<std::shared_ptr<SnapshotReader>(base::Peer)> mapped;
    /// go_on() is wanted, soon, after whatever else there is to do.
    std::function<void()> on_more;
    /// How the node stands, for whoever asks: as text, or as JSON. May be empty.
    std::function<std::string(bool)> state_text;
  };
  Gossip(const base::Clock& clock, base::Link& link, const Config& config, Node self, uint64_t seed, Publisher& own, Hooks hooks);

  base::Status add_peer(const Node& node) { return peers_.add(node); }
  base::Status remove_peer(const std::string& name);
  const PeerBook& peers() const { return peers_; }
  base::Nanos now() const { return clock_.now(); }
  const Serving& serving() const { return serving_; }
  const ExchangeTally& exchanges() const { return tally_; }
  /// Peers that have proposed an exchange, and wait for this node's next fetch.
  size_t proposals() const { return held_.size(); }
  bool is_waiting(const PeerEntry& peer) const { return held_.contains(peer.life); }
  /// Bytes of snapshots, as encoded, that messages have brought.
  uint64_t fetched_bytes() const { return fetched_bytes_; }
  /// How far a peer's model was from this node's, when it was averaged with.
  void note_disagreement(const std::string& peer, double disagreement);

  /// Begins a fetch; there is none under way. `round` counts this node's updates; `own` are the arrays that it has published.
  void fetch(uint64_t round, std::vector<ArraySpec> own);
  bool fetching() const { return fetching_; }
  const FetchResult& result() const { return result_; }
  ReceiveBuffer& receive_buffer() { return receive_buffer_; }
  /// The next piece of a peer's mapped memory; see Hooks::on_more.
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
    base::SinkRef sink;  ///< once its header has come
  };
  /// On one peer.
  struct Attempt {
    std::string peer;
    base::Nanos silent_since;
    bool last = false;       ///< nobody else is left to ask
    bool described = false;  ///< the receive_buffer has begun
    uint64_t asked = 0;      ///< bytes, of the version that the receive_buffer is for
    int restarts = 0;
    uint64_t version = 0;                     ///< the only one that is wanted; 0: the newest
    std::map<uint64_t, Request> pieces;         ///< by the number of the question
    uint64_t heard = 0;                       ///< bytes of pieces that were under way, when they were looked at last
    std::shared_ptr<SnapshotReader> mapping;  ///< instead of questions
    std::optional<PairExchange> exchange;                 ///< of a symmetric exchange
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
  // Symmetric exchanges: exchange.cpp.
  bool symmetric() const { return config_.exchange == Exchange::kSymmetric; }
  void propose(PeerEntry& peer);
  bool accept_held();
  void accept(PeerEntry& peer, base::Peer life, const Proposal& proposal);
  void settle_proposal(base::Peer from);
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
  std::map<base::Peer, Proposal> held_;         ///< by those whose time has not come
  std::map<base::Peer, uint64_t> committed_;    ///< the last exchange with each that this node, its proposer, made valid
  std::map<base::Peer, uint64_t> accepted_;     ///< the last one of each other's that came to be valid here
  ExchangeTally tally_;
  uint64_t fetched_bytes_ = 0;
  uint64_t questions_ = 0;
  bool somebody_failed_ = false;  ///< in this fetch
  bool told_alone_ = false;
  bool more_wanted_ = false;
};

}  // namespace mv::gossip
