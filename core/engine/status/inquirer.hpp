#pragma once
// Asks all members how they stand, and answers when asked.

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/checkpoint/coordinator.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/collective/groups.hpp"
#include "engine/status/overview.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/server/commands.hpp"
#include "engine/table/server/server.hpp"

namespace mv::status {

/// The master, who is connected with everyone, gathers; others ask it, and do with those whom they reach if it does not answer.
/// Questions and answers are no requests of rpc: they wait behind nothing, cost the answering side no memory, and are asked again until a
/// short deadline, after which the silent are shown as silent.
///
/// It also looks every second whether anything has waited for long. The master is told, and logs the picture, once for each table
/// or barrier; where the master is silent itself, whoever has noticed does. Loop thread only.
class Inquirer {
 public:
  using Told = std::function<void(const std::string& text)>;
  using Paths = std::function<Path(base::Peer)>;

  Inquirer(const base::Clock& clock, base::Link& link, cluster::Cluster& cluster, const table::Client& client,
           const table::Server& server, const checkpoint::Coordinator& coordinator, const table::Commands& commands,
           const collective::Groups& groups)
      : clock_(clock),
        link_(link),
        cluster_(cluster),
        client_(client),
        server_(server),
        coordinator_(coordinator),
        commands_(commands),
        groups_(groups) {}

  void start();
  /// What is known of the paths to peers; without it reports tell nothing of them.
  void set_paths(Paths paths) { paths_ = std::move(paths); }
  /// Where this node serves its metrics over HTTP.
  void set_metrics(std::string address) { metrics_ = std::move(address); }

  /// Tells how the cluster stands, soon, whatever has become of its members.
  void ask(bool json, Told told);

  /// Inquire, Report, Overview and Stuck, which are nobody else's.
  static bool is_status(const wire::Message& message);
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload);
  /// Inquire, of somebody who is no member. However often it asks, members are not.
  void on_observer_message(base::Peer from, const wire::Message& message);
  /// Where a large Overview goes.
  base::SinkRef place(base::Peer from, const wire::Message& message, size_t bytes);
  void on_lost(base::Peer peer);

  base::Nanos next_deadline() const;
  void tick();

 private:
  struct Asker {
    bool json;
    Told told;
  };
  /// One round of questions, and all who want to hear of it.
  struct Gathering {
    uint64_t number = 0;
    std::set<base::Peer> awaited;
    std::map<base::Peer, Report> reports;
    std::vector<Asker> askers;
    base::Nanos again{0}, until{0};
  };
  /// A question to the master.
  struct Relay {
    Asker asker;
    base::Nanos again{0}, until{0};
  };
  /// What the last round came to, as text and JSON once somebody has wanted it so.
  struct Picture {
    base::Nanos at{0};
    Overview overview;
    std::string text, json;
    const std::string& as(bool json);
  };
  struct Sample {
    base::Nanos at;
    std::map<base::Peer, Path> paths;
  };

  bool master_answers() const;
  void gather(Asker asker);
  void end_gathering();
  Overview overview(std::map<base::Peer, Report> reports) const;
  void send_inquire(base::Peer to, uint64_t number, bool whole, bool json);
  void answer_whole(base::Peer to, uint64_t number, bool json);
  void send_overview(base::Peer to, uint64_t number, const std::string& text);
  void relay_over(uint64_t number);
  Report report() const;
  std::vector<cluster::Wait> waits() const;
  std::vector<PeerState> peers() const;

  void look();
  std::set<std::string> stuck() const;
  void note_stuck(const std::set<std::string>& what);
  void tell_master(const std::set<std::string>& what);

  const base::Clock& clock_;
  base::Link& link_;
  cluster::Cluster& cluster_;
  const table::Client& client_;
  const table::Server& server_;
  const checkpoint::Coordinator& coordinator_;
  const table::Commands& commands_;
  const collective::Groups& groups_;
  Paths paths_;
  std::string metrics_;
  wire::FrameBuilder builder_;
  uint64_t numbers_ = 0;
  std::optional<Gathering> gathering_;
  std::optional<Picture> last_;
  std::map<uint64_t, Relay> relays_;                     ///< by number
  std::set<std::pair<base::Peer, uint64_t>> answering_;  ///< who has asked for the whole, and is not answered yet
  std::deque<Sample> samples_;                           ///< the last seconds', the oldest first
  std::map<std::string, base::Nanos> stuck_told_;  ///< what was logged already, and when it was last seen to be stuck
  base::Nanos started_{0}, next_look_ = base::kNever;
};

}  // namespace mv::status
