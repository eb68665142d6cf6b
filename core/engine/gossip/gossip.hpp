#pragma once
// One node's gossip: fetches a peer's newest snapshot, and serves its own. Messages and time in, messages and completions out;
// knows nothing of sockets or threads.
//
// A fetch tries one peer after the other until one has answered whole, all have failed, or Config::timeout is used up. One that
// says nothing for a third of it is given up, so that there is time for another.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/gossip/config.hpp"
#include "engine/gossip/intake.hpp"
#include "engine/gossip/peers.hpp"
#include "engine/gossip/serving.hpp"
#include "engine/gossip/snapshot.hpp"
#include "wire/frame.hpp"

namespace mv::gossip {

/// What a fetch came to.
struct Caught {
  std::string peer;  ///< empty: nobody had anything
  std::string why;   ///< then
};

/// Loop thread only, but for what caught() and intake() give between a completion and the next fetch().
class Gossip final : public base::LinkEvents {
 public:
  struct Hooks {
    /// A fetch has come to its end.
    std::function<void()> on_done;
    /// The snapshots of this life of a peer, where its memory is mapped; else null, and they are asked for by messages. May be empty.
    std::function<std::shared_ptr<SnapshotReader>(base::Peer)> mapped;
    /// go_on() is wanted, soon, after whatever else there is to do.
    std::function<void()> on_more;
  };
  Gossip(const base::Clock& clock, base::Link& link, const Config& config, Node self, uint64_t seed, const Publisher& own, Hooks hooks);

  base::Status add_peer(const Node& node) { return peers_.add(node); }
  base::Status remove_peer(const std::string& name);
  const PeerBook& peers() const { return peers_; }
  base::Nanos now() const { return clock_.now(); }
  uint64_t served_bytes() const { return serving_.served_bytes(); }

  /// Begins a fetch; there is none under way. `round` counts this node's updates; `own` are the arrays that it has published.
  void fetch(uint64_t round, std::vector<Part> own);
  bool fetching() const { return fetching_; }
  const Caught& caught() const { return caught_; }
  Intake& intake() { return intake_; }
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
  struct Piece {
    uint64_t first, count;
    base::SinkRef sink;  ///< once its header has come
  };
  /// On one peer.
  struct Attempt {
    std::string peer;
    base::Nanos silent_since;
    bool described = false;  ///< the intake has begun
    uint64_t asked = 0;      ///< bytes, of the version that the intake is for
    int restarts = 0;
    std::map<uint64_t, Piece> pieces;         ///< by the number of the question
    std::shared_ptr<SnapshotReader> mapping;  ///< instead of questions
  };
  enum class Fault { kSilent, kRefused };

  void try_next();
  void begin_asking(PeerEntry& peer);
  void start_over();
  void ask(base::Peer to, uint64_t version, uint64_t first, uint64_t count);
  void ask_more(base::Peer to);
  bool begin_intake(Description description);
  void begin_copying();
  void want_more();
  void piece_arrived(uint64_t first, uint64_t count);
  base::SinkRef place(base::Peer from, const wire::Fetched& fetched, size_t bytes);
  void take_absence(base::Peer from, const wire::Fetched& fetched);
  void drop_pieces();
  void fail(const std::string& why, Fault fault);
  void skip(const std::string& why);
  void finish(std::string peer, std::string why);
  PeerEntry* attempted() { return attempt_ ? peers_.find(attempt_->peer) : nullptr; }

  const base::Clock& clock_;
  base::Link& link_;
  const Config config_;
  const Hooks hooks_;
  PeerBook peers_;
  Serving serving_;
  Dice dice_;
  wire::FrameBuilder builder_;

  bool fetching_ = false;
  base::Nanos deadline_ = base::kNever;
  uint64_t round_ = 0;
  std::vector<Part> own_parts_;
  std::set<std::string> tried_;
  std::string last_failure_;
  std::optional<Attempt> attempt_;
  Intake intake_;
  Caught caught_;
  uint64_t questions_ = 0;
  bool told_alone_ = false;
  bool more_wanted_ = false;
};

}  // namespace mv::gossip
