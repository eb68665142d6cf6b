#pragma once
// A whole cluster on one thread: runs one scenario from the first process to the last.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/member.hpp"
#include "etcd.hpp"
#include "host_memory.hpp"
#include "network.hpp"
#include "scenario.hpp"
#include "script.hpp"
#include "stranger.hpp"

namespace mv::sim {

struct Outcome {
  std::string violation;  ///< empty: all checks passed
  uint64_t hash = 0;      ///< of all events
  uint64_t steps = 0;
  Nanos span{0};
};

class SimCluster final : private Surroundings {
 public:
  SimCluster(const Scenario& scenario, bool verbose);
  Outcome run();

 private:
  /// One incarnation of one process.
  struct Node {
    size_t place = 0;        ///< in the scenario
    size_t life = SIZE_MAX;  ///< of a worker, for the ledgers
    std::string name;
    cluster::Self self;
    std::unique_ptr<SimLink> link;
    std::unique_ptr<SimHostMemory> memory;
    std::unique_ptr<SimEtcd::Client> keeper;
    std::unique_ptr<engine::Member> member;
    std::shared_ptr<Script> script;
    std::vector<Step> steps;
    bool again = false, ready = false, failed = false, finished = false, ending = false, flush_asked = false, killed = false, dropped = false, drained = false;
    Nanos armed = base::kNever;
    int64_t rank = -1;

    void stop();
  };
  /// A process that is cut off from all others, also from those that start meanwhile.
  struct Isolation {
    Peer peer;
    Way way;
    Nanos until;
  };

  Timeline& timeline() override { return timeline_; }
  const Scenario& scenario() const override { return plan_; }
  Ledger& ledger(size_t table) override { return *ledgers_[table]; }
  Quarantine& quarantine() override { return quarantine_; }
  void later(Peer self, Nanos span, std::function<void()> work) override;
  void touched(Peer self) override { touch(node(self)); }
  bool names_a_lost_process(const std::string& text) const override;
  bool changes_may_fail() const override { return changes_may_fail_ || plan_.out_of_step; }
  bool servers_may_fail() const override { return servers_may_fail_; }
  size_t life_at(int64_t rank) const override;
  bool came_too_late(size_t life) const override;
  bool is_gone(size_t life) const override { return gone_lives_.contains(life); }
  void barrier_passed(Peer self, Nanos entered) override;
  void left(Peer self, bool clean) override;
  bool verbose() const override { return verbose_; }

  const NodePlan& plan_of(size_t place) const;
  void come(const FaultPlan& fault);
  void come_to_work(size_t place);
  void resize(const FaultPlan& fault);
  void add_node(size_t place, size_t life, int64_t rank, bool again);
  void start(Node& node);
  Node& node(Peer peer);
  void touch(Node& node);
  void look_after(Node& node);
  void arm(Node& node);
  void compare_later(Node& node);
  void on_ready(Node& node, const cluster::View& view);
  void on_failed(Node& node, const base::Status& why);
  void serve_on(Node& node);
  void end(Node& node);
  void check_parts(const Node& node);
  void check_primaries(const Node& node);
  void schedule_faults(bool early);
  void inject(const FaultPlan& fault);
  void part(const FaultPlan& fault);
  void cut(Peer a, Peer b, Nanos span, Way way, bool breaks);
  void isolate(const Node& node, const FaultPlan& fault);
  void pause(const FaultPlan& fault);
  void kill(size_t place, const FaultPlan& fault);
  void restart(size_t place, int64_t rank);
  void drain(const FaultPlan& fault);
  void drained(Node& node, const FaultPlan& fault, const base::Status& status);
  void keep_own_business(std::vector<Step>& steps) const;
  bool names_a_leaver(const std::string& text) const;
  void gone(const Node& node);
  bool is_replaceable(const Node& node) const;
  bool has_copies(const Node& node) const;
  bool is_noticed(const Node& node) const;
  const Node* master() const;
  bool is_present_master(const Node& node) const;
  bool leaves_quorum(const Node& node, const Node& master) const;
  void lose_life(size_t life);
  bool all_ended() const;
  bool cluster_dissolves() const;
  void check_end();
  std::string unfinished() const;

  const Scenario plan_;
  const bool verbose_;
  Timeline timeline_;
  Random random_;
  Network network_;
  SimMachine machine_;
  SimEtcd etcd_;
  Quarantine quarantine_;
  Stranger stranger_;
  std::vector<std::unique_ptr<Ledger>> ledgers_;
  std::vector<std::unique_ptr<Node>> nodes_;  ///< in order of creation
  std::vector<Isolation> isolations_;
  std::vector<bool> clean_;                   ///< by life: left cleanly
  std::set<int64_t> gone_;                    ///< ranks that others may have lost
  std::set<int64_t> unnoticed_;               ///< ranks of lost servers whose tables others serve
  bool anyone_gone_ = false;                  ///< a process of unknown rank may be lost
  std::set<size_t> gone_lives_;
  bool changes_may_fail_ = false, servers_may_fail_ = false;
  bool replaced_server_ = false;                            ///< a back-up serves the tables of a server that was lost
  std::map<std::pair<int64_t, uint64_t>, Peer> primaries_;  ///< by rank of the part's server, and epoch
  size_t next_life_ = 0, lives_open_ = 0, waiting_for_ready_ = 0;
  size_t restarts_open_ = 0;
};

}  // namespace mv::sim
