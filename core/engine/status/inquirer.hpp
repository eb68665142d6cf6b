#pragma once
// Status requests: asks all members for their reports, and answers such requests.

#include <array>
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
#include "engine/replica/parts.hpp"
#include "engine/status/log_questions.hpp"
#include "engine/status/overview.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/server/commands.hpp"

namespace mv::status {

/// Collects the status of the cluster, and detects stalls. The master is connected with all members, so it collects
/// their reports. Other nodes ask the master; if it does not answer, they collect from the members that they reach.
/// Status messages are not requests of rpc: they never wait behind other requests, and cost the answering side no
/// memory. They are repeated until a short deadline; after it, members without an answer are shown as silent.
///
/// The Inquirer also checks at least every second for requests that have waited for long. It reports them to the
/// master, which logs the status once for each table or barrier. If the master is silent, the node that detected the
/// stall logs it. Loop thread only.
class Inquirer {
 public:
  using Told = std::function<void(const std::string& text)>;
  using Paths = std::function<Path(base::Peer)>;

  Inquirer(const base::Clock& clock, base::Link& link, cluster::Cluster& cluster, const table::Client& client,
           const replica::Parts& parts, const checkpoint::Coordinator& coordinator, const table::Commands& commands,
           const collective::Groups& groups)
      : clock_(clock),
        link_(link),
        cluster_(cluster),
        client_(client),
        parts_(parts),
        coordinator_(coordinator),
        commands_(commands),
        groups_(groups) {}

  void start();
  /// Sets the source of transports and byte counts of the peers. Without it, reports contain no peers.
  void set_paths(Paths paths) { paths_ = std::move(paths); }
  /// Sets the transports of this node, and why it has these.
  void set_transports(std::string choice) { choice_ = std::move(choice); }
  /// Sets the source of the line about the keeper. It runs on the loop, and must not block.
  void set_keeper(std::function<std::string()> state) { keeper_ = std::move(state); }
  /// Sets the address where this node serves its metrics over HTTP.
  void set_metrics(std::string address) { metrics_ = std::move(address); }

  /// The numbers that this node's program reports. Any thread.
  ReportedNumbers& reported() { return reported_; }

  /// Calls `told` with the status of the cluster, within a few seconds even if members do not answer.
  void ask(const Form& form, Told told);

  /// Inquire, Report, Overview and Stuck.
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload);
  /// An Inquire of an observer. However often it asks, the members are asked at a limited rate.
  void on_observer_message(base::Peer from, const wire::Message& message);
  /// Returns the sink for a large Overview.
  base::SinkRef place(base::Peer from, const wire::Message& message, size_t bytes);
  void on_lost(base::Peer peer);

  /// What this node knows by itself. live: see MV_LIVE.
  Report report(bool live = false) const;
  /// The oldest call in which this node's program waits; empty if there is none.
  std::string own_wait() const;

  base::Nanos next_deadline() const;
  void tick();

 private:
  struct Asker {
    Form form;
    Told told;
  };
  /// One collection of reports, and the callers that wait for it.
  struct Gathering {
    uint64_t number = 0;
    bool live = false;
    std::set<base::Peer> awaited;
    std::map<base::Peer, Report> reports;
    std::vector<Asker> askers;
    base::Nanos again{0}, until{0};
  };
  /// A request to the master.
  struct Relay {
    Asker asker;
    base::Nanos again{0}, until{0};
  };
  /// The result of the last collection. Text and JSON are rendered on first use.
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
  void end_gathering(bool live);
  std::optional<Gathering>& gathering(bool live) { return gatherings_[live ? 1 : 0]; }
  std::optional<Picture>& last(bool live) { return last_[live ? 1 : 0]; }
  Overview overview(std::map<base::Peer, Report> reports, bool live) const;
  void send_inquire(base::Peer to, uint64_t number, bool whole, const Form& form);
  bool takes_question(base::Peer from, uint64_t number);
  void answer_resize(base::Peer to, uint64_t number, uint32_t servers);
  void answer_whole(base::Peer to, uint64_t number, const Form& form);
  void answer_log(base::Peer to, uint64_t number, uint32_t rank, bool json);
  void on_report(base::Peer from, const wire::Report& report);
  void send_overview(base::Peer to, uint64_t number, const std::string& text, mv_status status = MV_OK);
  void relay_over(uint64_t number);
  std::vector<cluster::Wait> waits() const;
  std::vector<cluster::Wait> own_waits() const;
  std::vector<table::TableState> held() const;
  std::vector<PeerState> peers() const;

  void check_stalls();
  std::set<std::string> stuck() const;
  void note_stuck(const std::set<std::string>& what);
  void tell_master(const std::set<std::string>& what);
  void tell_of_silence();

  const base::Clock& clock_;
  base::Link& link_;
  cluster::Cluster& cluster_;
  const table::Client& client_;
  const replica::Parts& parts_;
  const checkpoint::Coordinator& coordinator_;
  const table::Commands& commands_;
  const collective::Groups& groups_;
  Paths paths_;
  std::string metrics_, choice_;
  std::function<std::string()> keeper_;
  ReportedNumbers reported_;
  wire::FrameBuilder builder_;
  uint64_t numbers_ = 0;
  std::array<std::optional<Gathering>, 2> gatherings_;   ///< for people and programs; live
  std::array<std::optional<Picture>, 2> last_;           ///< likewise
  std::map<uint64_t, Relay> relays_;                     ///< by number
  LogQuestions logs_{clock_, link_};
  std::set<std::pair<base::Peer, uint64_t>> answering_;  ///< peers' unanswered requests for the whole status
  std::deque<Sample> samples_;                           ///< of the last seconds, the oldest first
  std::map<std::string, base::Nanos> stuck_told_;        ///< logged stalls and silences, and when each was last seen
  base::Nanos started_{0}, next_look_ = base::kNever;
};

}  // namespace mv::status
