// sim_collective: workers reduce together while members are cut off, stopped, killed, or give up. A completed operation has written
// exactly, on every rank, what a loop over its members gives; an error names a lost member; no rank waits for ever; and survivors and
// newcomers that continue together agree on the list of ranks.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collective/library.hpp"
#include "collective/work.hpp"
#include "engine/member.hpp"
#include "keeper.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;

constexpr Nanos kEnd = 3000s;
constexpr Nanos kPatience = 120s;
constexpr auto kName = "sim";  // of the group that grows
constexpr uint32_t kMostGrowths = 8;
constexpr size_t kMostWithdrawn = 5;  // on a slow network it would be every operation, and no group would finish

class Swarm {
 public:
  Swarm(uint64_t seed, size_t nodes, bool verbose)
      : seed_(seed),
        random_(Random::mix(seed)),
        nodes_(nodes > 0 ? nodes : static_cast<size_t>(random_.between(2, 9))),
        conditions_(draw_conditions(random_)), network_(timeline_, random_.fork(), conditions_) {
    network_.verbose = verbose;
    for (Node& node : nodes_) node.role = static_cast<int>(random_.between(1, 3));
    while (count(MV_ROLE_SERVER) == 0 || count(MV_ROLE_WORKER) < 2) nodes_[random_.below(nodes_.size())].role = MV_ROLE_ALL;
    if (random_.chance(0.5)) kills_ = 1 + random_.below(std::max<size_t>(1, nodes_.size() / 4));
    if (random_.chance(0.15)) cuts_off_ = random_.below(nodes_.size());
    if (random_.chance(0.15)) gives_up_ = random_.below(nodes_.size());
    impatient_ = !may_lose() && gives_up_ == SIZE_MAX && random_.chance(0.4);
    if (!impatient_ && gives_up_ == SIZE_MAX && random_.chance(0.5)) let_grow();
    if (Random more(Random::mix(seed) + 1); more.chance(0.3)) hands_over_from_ = more.chance(0.5) ? 0 : 10'000;
    Random ends(Random::mix(seed) + 2);
    ends_evenly_ = ends.chance(0.4);
    if (!grows_ && !impatient_ && ends.chance(0.3)) {
      leaves_early_ = ends.below(nodes_.size());
      leaves_at_ = ends.below(3);
    }
  }

  /// Workers only can come back: most nodes are, and several of them are killed.
  void let_grow() {
    grows_ = true;
    while (nodes_.size() < 3) nodes_.emplace_back();
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].role = i == 0 || random_.chance(0.1) ? MV_ROLE_ALL : MV_ROLE_WORKER;
    if (cuts_off_ == SIZE_MAX) kills_ = random_.below(nodes_.size());
    keeps_size_ = cuts_off_ == SIZE_MAX && random_.chance(0.5);
  }

  /// Runs one seed; returns what went wrong, or "".
  std::string run() {
    for (size_t i = 0; i < nodes_.size(); ++i) start(i);
    while (timeline_.violation().empty() && timeline_.step(kEnd)) {
    }
    for (const Node& node : nodes_)
      if (timeline_.violation().empty() && node.member != nullptr)
        timeline_.violated(fmt::format("{} has not ended: {}, at {}, {}", name(node), node.done ? "done" : "at work", node.at, node.doing));
    return timeline_.violation();
  }

  std::string describe() const {
    std::string text = fmt::format("{} nodes, {} workers, {} killed", nodes_.size(), count(MV_ROLE_WORKER), kills_);
    if (cuts_off_ < nodes_.size()) text += fmt::format(", node {} cut off", cuts_off_);
    if (gives_up_ < nodes_.size()) text += fmt::format(", node {} gives up", gives_up_);
    if (impatient_) text += ", impatient openings";
    if (ends_evenly_) text += ", without drains";
    if (leaves_early_ < nodes_.size()) text += fmt::format(", node {} leaves early", leaves_early_);
    if (grows_) text += ", a group that grows";
    if (hands_over_from_ != UINT64_MAX) text += ", a library that reduces";
    return text;
  }

 private:
  struct Node : Kept {
    int role = MV_ROLE_ALL;
    bool killed = false, serves_on = false, ended = false, done = false;
    bool is_new = false;             ///< it has the place of a killed worker
    // a worker's
    collective::GroupRef group;
    std::vector<size_t> ranks;       ///< of the group: nodes
    size_t at = 0;                   ///< of its operations so far
    size_t tries = 0;                ///< openings, for impatient workers
    size_t withdrawn = 0;            ///< operations, for the worker that gives up
    std::string doing;
    std::unique_ptr<Work> work;      ///< the current one
  };

  struct Over final : base::Operation {
    explicit Over(std::function<void(const base::Status&)> told) : told(std::move(told)) {}
    void ended(const base::Status& status) override { told(status); }
    const std::function<void(const base::Status&)> told;
  };

  /// An operation whose only limit is a deadline, for an awaited end.
  base::OperationRef until(Nanos patience) const {
    const auto call = std::make_shared<Over>([](const base::Status&) {});
    call->set_deadline(timeline_.now() + patience);
    return call;
  }

  size_t count(int role) const {
    return static_cast<size_t>(std::ranges::count_if(nodes_, [&](const Node& node) { return (node.role & role) != 0; }));
  }
  std::string name(const Node& node) const { return fmt::format("node {}", &node - nodes_.data()); }
  size_t index(const Node& node) const { return static_cast<size_t>(&node - nodes_.data()); }

  // ---- a node's life cycle

  /// On their own, ranks would choose differently; the lowest rank's choice counts.
  static collective::Basis basis_of(size_t i) {
    collective::Basis basis;
    basis.costs.transports.fill({i % 2 == 0 ? 1.0 : 0.0, 0});
    basis.costs.gamma = i % 2 == 0 ? 0 : 1;
    return basis;
  }

  void start(size_t i) {
    Node& node = nodes_[i];
    node.self.peer = random_.next() | 1;
    node.self.rank = static_cast<int64_t>(i);
    node.self.nodes = static_cast<uint32_t>(nodes_.size());
    node.self.role = static_cast<decltype(node.self.role)>(node.role);
    node.self.is_master = i == 0;
    node.self.master = "sim:0";
    node.self.address = fmt::format("sim:{}", i);
    node.self.host = fmt::format("host{}", i / 3);
    node.self.pid = static_cast<uint32_t>(1000 + i);
    node.looked_after = [this, &node] {
      if (node.serves_on && node.member->cluster().all_workers_gone()) end(node);
    };
    node.link = std::make_unique<SimLink>(network_, node.self.peer);
    rpc::ClientOptions options;
    if (conditions_.lossy) options.probe_after = 100ms;
    engine::Member::Events events{[this, &node](const cluster::View&) { on_ready(node); },
                                  [this, &node](const base::Status& why) { on_failed(node, why); },
                                  [this, &node] { keeper_.touch(node); }};
    node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events));
    node.member->groups().choose_by(basis_of(i));
    network_.add(node.self.peer, name(node), node.self.address, *node.member, [this, &node] { keeper_.touch(node); });
    node.member->start();
    keeper_.touch(node);
  }

  /// A newcomer may come when all others have ended.
  void on_failed(Node& node, const base::Status& why) {
    if (!node.is_new) return timeline_.violated(name(node) + ": " + why.text());
    node.done = true;
    end(node);
  }

  void restart(size_t i) {
    Node& node = nodes_[i];
    node.killed = node.serves_on = node.ended = node.done = false;
    node.is_new = true;
    node.doing = "starting again";
    start(i);
  }

  void on_ready(Node& node) {
    if (node.is_new) return keeper_.later(node, Nanos(random_.between(0, 5'000'000)), [this, &node] { join(node); });
    if (++ready_ < nodes_.size()) return;
    inject();
    for (Node& each : nodes_) keeper_.later(each, Nanos(random_.between(0, 5'000'000)), [this, &each] { begin(each); });
    keeper_.touch(node);
  }

  void begin(Node& node) {
    if ((node.role & MV_ROLE_WORKER) == 0) {
      node.serves_on = true;
      return keeper_.touch(node);
    }
    std::vector<base::Peer> peers;
    for (const auto* worker : node.member->cluster().view().workers()) peers.push_back(worker->peer);
    node.doing = "opening";
    const bool hurries = impatient_ && node.tries++ < 3 && random_.chance(0.5);
    const Nanos patience = hurries ? Nanos(random_.between(0, 30'000'000)) : kPatience;
    node.member->groups().open(until(patience), std::move(peers), [this, &node](base::Result<collective::GroupRef> group) {
      if (group.ok()) return opened(node, group.value());
      if (impatient_ && group.status().code() == MV_ETIMEOUT) return begin_again(node);
      expect_loss(node, group.status());
      leave(node);
    });
    keeper_.touch(node);
  }

  /// A newcomer's try. The others may never grow again.
  void join(Node& node) {
    node.doing = "joining";
    node.member->groups().join(until(random_.chance(0.2) ? Nanos(random_.between(0, 100'000'000)) : kPatience), kName, [this, &node](base::Result<collective::GroupRef> group) {
      keeper_.later(node, 0s, [this, &node, group] {
        if (group.ok()) return opened(node, group.value());
        if (group.status().code() != MV_ETIMEOUT) expect_loss(node, group.status());
        leave(node);
      });
    });
    keeper_.touch(node);
  }

  void begin_again(Node& node) {
    keeper_.later(node, Nanos(random_.between(0, 5'000'000)), [this, &node] { begin(node); });
  }

  void inject() {
    for (size_t i = 0; i < kills_; ++i)
      timeline_.after(Nanos(random_.between(0, 400'000'000)), [this] {
        Node& node = nodes_[random_.below(nodes_.size())];
        if (node.ended || node.member == nullptr) return;
        network_.remove(node.self.peer, false, random_.chance(0.8));
        node.killed = true;
        node.group.reset();
        node.member.reset();
        node.flush_asked = false;
        node.armed = base::kNever;
        if (grows_ && node.role == MV_ROLE_WORKER && index(node) != 0 && nodes_[0].member != nullptr && random_.chance(0.9))
          timeline_.after(Nanos(random_.between(0, 100'000'000)), [this, i = index(node)] { restart(i); });
      });
    if (cuts_off_ < nodes_.size())
      timeline_.after(Nanos(random_.between(0, 200'000'000)), [this] {
        for (const Node& other : nodes_)
          if (index(other) != cuts_off_ && other.member != nullptr && nodes_[cuts_off_].member != nullptr)
            network_.part(nodes_[cuts_off_].self.peer, other.self.peer, 30s, false);
      });
    keeper_.disturb(nodes_);
  }

  void end(Node& node) {
    if (std::exchange(node.ended, true)) return;
    keeper_.later(node, 1ms, [this, &node] {
      network_.remove(node.self.peer, true, true);
      node.group.reset();
      node.member.reset();
    });
  }

  void leave(Node& node) {
    node.done = true;
    node.doing = "leaving";
    node.member->leave([this, &node](const base::Status&) {
      if ((node.role & MV_ROLE_SERVER) == 0 && !node.self.is_master) return end(node);
      node.serves_on = true;
      keeper_.touch(node);
    });
    keeper_.touch(node);
  }

  // ---- a worker's program

  bool may_lose() const { return kills_ > 0 || cuts_off_ < nodes_.size(); }

  /// Closes the group, or leaves with it open, without a word to the others.
  void part(Node& node) {
    node.doing = "parting";
    if (random_.chance(0.5)) return leave(node);
    node.member->groups().close(std::exchange(node.group, nullptr));
    keeper_.touch(node);
    const Nanos stays = random_.chance(0.5) ? Nanos(random_.between(0, 400'000'000)) : kPatience + kPatience / 2;
    keeper_.later(node, stays, [this, &node] { leave(node); });
  }

  /// Expects an error that the end of a member, or its giving up, explains.
  void expect_loss(Node& node, const base::Status& why) {
    const bool lost =
        why.code() == MV_EPEERLOST && (may_lose() || gives_up_ < nodes_.size() || leaves_early_ < nodes_.size()) &&
        (why.text().find("worker ") != std::string::npos || why.text().find("the others") != std::string::npos ||
         why.text().find("all other ranks have left") != std::string::npos);
    const bool given_up = why.code() == MV_ECANCELED && gives_up_ < nodes_.size() && why.text().find("withdrawn") != std::string::npos;
    if (!lost && !given_up) timeline_.violated(fmt::format("{}, {} {}: {} {}", name(node), node.doing, node.at, why.code(), why.text()));
  }

  void opened(Node& node, const collective::GroupRef& group) {
    node.group = group;
    node.at = 0;
    node.ranks.clear();
    for (const uint32_t place : group->members().places) node.ranks.push_back(place);  // of which some may have started again
    const auto [known, fresh] = members_of_.try_emplace(group->members().id, node.ranks);
    const collective::Members& members = group->members();
    if (members.elder() < 0 || static_cast<size_t>(members.elder()) >= node.ranks.size()) timeline_.violated(name(node) + " has a group without an elder");
    if (hands_over_from_ != UINT64_MAX)
      group->hand_over_to(library_.join(members.id, static_cast<size_t>(group->setting().rank), node.ranks.size(), [this, &node] { keeper_.touch(node); }), hands_over_from_);
    if (!fresh && known->second != node.ranks) timeline_.violated(name(node) + " has a different list of members than the rest of its group");
    go(node);
  }

  void go(Node& node) {
    keeper_.later(node, Nanos(random_.between(1'000, 20'000'000)), [this, &node] { step(node); });
  }

  void step(Node& node) {
    const Script script(seed_ ^ node.group->members().id, node.ranks.size());
    const auto rank = static_cast<size_t>(node.group->setting().rank);
    if (grows_ && node.at == std::min<size_t>(2, script.common()) && node.group->members().generation < kMostGrowths) return agree_to_grow(node);
    if (index(node) == leaves_early_ && node.at == leaves_at_) return part(node);
    if (ends_evenly_ && node.at >= script.common()) return part(node);
    if (node.at >= script.common() + script.steps(rank)) return drain(node);
    reduce(node, std::make_unique<Work>(script, rank, node.at, false));
  }

  /// As api::MessageGroup::grow() does.
  void agree_to_grow(Node& node) {
    node.doing = "agreeing to grow";
    const auto number = std::make_shared<int64_t>(static_cast<int64_t>(index(node)));
    collective::Operation operation;
    operation.kind = collective::Kind::kGrow;
    operation.reduction = math::Reduction::kMin;
    operation.out = {{reinterpret_cast<std::byte*>(number.get()), 1, MV_I64}};
    const auto call = std::make_shared<Over>([this, &node, number](const base::Status& status) {
      keeper_.later(node, 0s, [this, &node, number, status] {
        if (!status.ok() && (status.code() != MV_EPEERLOST || node.group->counters().broken.ok())) return fail(node, status);
        if (status.ok() && *number != static_cast<int64_t>(std::ranges::min(node.ranks))) timeline_.violated(name(node) + " has a wrong minimum");
        go_on_with_others(node);
      });
    });
    call->set_deadline(timeline_.now() + kPatience);
    node.group->begin(std::move(operation), call);
    keeper_.touch(node);
  }

  void reduce(Node& node, std::unique_ptr<Work> work) {
    node.work = std::move(work);
    node.doing = collective::kind_name(node.work->operation().kind);
    const std::vector<collective::Operation> operations = node.work->operations();
    const auto left = std::make_shared<size_t>(operations.size());
    const auto first = std::make_shared<base::Status>();
    base::OperationRef over;
    for (const collective::Operation& operation : operations) {
      over = std::make_shared<Over>([this, &node, left, first](const base::Status& status) {
        if (first->ok()) *first = status;
        if (--*left == 0) keeper_.later(node, 0s, [this, &node, first] { reduced(node, *first); });
      });
      over->set_deadline(timeline_.now() + kPatience);
      node.group->begin(collective::Operation(operation), over);
    }
    if (index(node) == gives_up_ && node.at > 2 && node.withdrawn < kMostWithdrawn) {
      const std::weak_ptr<base::Operation> weak = over;
      keeper_.later(node, Nanos(random_.between(0, 30'000'000)), [this, &node, weak] {
        const auto still = weak.lock();
        if (still != nullptr) {
          ++node.withdrawn;
          still->withdraw(MV_ECANCELED);
        }
        keeper_.touch(node);
      });
    }
    keeper_.touch(node);
  }

  void reduced(Node& node, const base::Status& status) {
    if (!status.ok()) return fail(node, status);
    if (std::string wrong = node.work->check(); !wrong.empty())
      return timeline_.violated(fmt::format("{}, operation {}: {}", name(node), node.at, wrong));
    timeline_.note(node.work->digest());
    ++node.at;
    const Script script(seed_ ^ node.group->members().id, node.ranks.size());
    if (node.work->drains()) return drain(node);
    if (node.at == script.common() + script.longest() + 2) return leave(node);
    go(node);
  }

  void drain(Node& node) {
    node.doing = "draining";
    node.group->drain(until(kPatience), [this, &node](base::Result<collective::Shape> shape) {
      keeper_.later(node, 0s, [this, &node, shape] { drained(node, shape); });
    });
    keeper_.touch(node);
  }

  void drained(Node& node, const base::Result<collective::Shape>& shape) {
    if (!shape.ok()) return fail(node, shape.status());
    const Script script(seed_ ^ node.group->members().id, node.ranks.size());
    const auto rank = static_cast<size_t>(node.group->setting().rank);
    if (!shape.value().finished) {
      auto work = std::make_unique<Work>(script, rank, node.at, true);
      if (std::string wrong = work->check_shape(shape.value()); !wrong.empty()) return timeline_.violated(name(node) + ": " + wrong);
      return reduce(node, std::move(work));
    }
    if (node.at != script.common() + script.longest())
      return timeline_.violated(fmt::format("{} learned that all are done, at {}", name(node), node.at));
    ++node.at;  // the number at which all of them drained
    keeper_.later(node, 1ms, [this, &node, script, rank] { reduce(node, std::make_unique<Work>(script, rank, node.at, false)); });
  }

  void fail(Node& node, const base::Status& why) {
    if (impatient_ && why.code() == MV_ECANCELED && why.text().find("gave up opening the group") != std::string::npos) {
      node.member->groups().close(std::exchange(node.group, nullptr));
      return begin_again(node);
    }
    expect_loss(node, why);
    keeper_.later(node, Nanos(random_.between(0, 50'000'000)), [this, &node] { go_on_with_others(node); });
  }

  /// Shrinks or grows the group. With `keeps_size_`, a worker waits for others in the places of the lost ones, for a while.
  void go_on_with_others(Node& node, bool shrinks = false) {
    const collective::GroupRef old = node.group;
    const uint32_t generation = old->members().generation;
    const bool grows = grows_ && !shrinks && (generation < kMostGrowths || random_.chance(0.5));
    const bool waits = grows && keeps_size_ && generation < kMostGrowths;
    all_wait_ = all_wait_ && waits;
    const size_t wanted = waits ? node.ranks.size() : 0;
    const auto grown = [this, &node, old, waits, wanted](base::Result<collective::GroupRef> group) {
      keeper_.later(node, 0s, [this, &node, old, waits, wanted, group] {
        if (group.ok() && all_wait_ && group.value()->members().peers.size() < wanted)
          timeline_.violated(fmt::format("{} has grown a group to {} ranks, and not to {}", name(node), group.value()->members().peers.size(), wanted));
        if (waits && !group.ok() && group.status().code() == MV_ETIMEOUT) return go_on_with_others(node, true);
        if (random_.chance(0.5)) node.member->groups().close(old);
        if (group.ok()) return opened(node, group.value());
        expect_loss(node, group.status());
        leave(node);
      });
    };
    node.doing = grows ? "growing" : "shrinking";
    if (grows)
      node.member->groups().grow(until(waits ? kPatience / 4 : kPatience), old, {kName, static_cast<uint32_t>(wanted)}, grown);
    else
      node.member->groups().shrink(until(kPatience), old, grown);
    keeper_.touch(node);
  }

  Timeline timeline_;
  const uint64_t seed_;
  Random random_;
  std::vector<Node> nodes_;
  const Conditions conditions_;
  Network network_;
  Keeper keeper_{timeline_, network_, random_};
  Library library_{timeline_, Random(Random::mix(seed_ + 1))};
  uint64_t hands_over_from_ = UINT64_MAX;  ///< bytes
  size_t kills_ = 0, cuts_off_ = SIZE_MAX, gives_up_ = SIZE_MAX;
  bool grows_ = false;      ///< workers grow their group at its second operation and after a loss; killed workers come back
  bool keeps_size_ = false;
  bool all_wait_ = true;    ///< nobody has shrunk a group, or grown one without waiting, so far
  bool impatient_ = false;  ///< workers may give up opening the group, and try again
  bool ends_evenly_ = false;  ///< workers leave after equally many operations
  size_t leaves_early_ = SIZE_MAX, leaves_at_ = 0;
  size_t ready_ = 0;
  std::map<uint64_t, std::vector<size_t>> members_of_;  ///< of groups, as their first opener named them
};

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Groups that reduce, on virtual time, with network faults from the seed.",
                            [](const mv::sim::SeedRun& asked) { return Swarm(asked.seed, asked.nodes, asked.verbose).run(); },
                            [](const mv::sim::SeedRun& of) { return Swarm(of.seed, of.nodes, false).describe(); });
}
