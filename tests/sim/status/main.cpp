// sim_status: clusters in a sync round that one worker delays. All members are asked for the cluster's status while members are cut off,
// stopped and killed. Every request is answered in time; without faults, the answers name the delaying worker.

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>

#include "keeper.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;

/// The maximum time of a request: the master's patience with its members, and its asker's with it, twice.
constexpr Nanos kAnswered = 4s;

class Ignored final : public base::Operation {
  void ended(const base::Status&) override {}
};

class StuckCluster {
 public:
  StuckCluster(uint64_t seed, bool verbose)
      : random_(Random::mix(seed)),
        nodes_(static_cast<size_t>(random_.between(2, 6))),
        culprit_(random_.below(nodes_.size())),
        disturbed_(random_.chance(0.6)),
        network_(timeline_, random_.fork(), conditions()) {
    network_.verbose = verbose;
  }

  /// Runs one seed; returns what went wrong, or "".
  std::string run() {
    for (size_t i = 0; i < nodes_.size(); ++i) start(i);
    timeline_.after(3s, [this] { work(); });
    if (disturbed_) timeline_.after(4s, [this] { disturb(); });
    for (int i = 0; i < 12; ++i)
      timeline_.after(Nanos(random_.between(5'000'000'000, 25'000'000'000)),
                      [this] { ask(random_.below(nodes_.size())); });
    while (timeline_.violation().empty() && timeline_.step(40s)) {
    }
    if (timeline_.violation().empty() && open_ > 0)
      timeline_.violated(fmt::format("{} requests were never answered", open_));
    if (timeline_.violation().empty() && !disturbed_ && answers_ == 0) timeline_.violated("no node sent a request");
    return timeline_.violation();
  }

 private:
  struct Node : Kept {
    std::vector<float> values = std::vector<float>(10);
    bool stopped = false;
  };

  Conditions conditions() {
    Conditions conditions;
    conditions.latency = Nanos(random_.between(20'000, 500'000));
    conditions.jitter = Nanos(random_.between(0, 3'000'000));
    conditions.lossy = random_.chance(0.3);
    if (conditions.lossy) conditions.drop = 0.01 * static_cast<double>(random_.between(0, 10));
    lossy_ = conditions.lossy;
    return conditions;
  }

  void start(size_t i) {
    Node& node = nodes_[i];
    node.self.peer = random_.next() | 1;
    node.self.rank = static_cast<int64_t>(i);
    node.self.nodes = static_cast<uint32_t>(nodes_.size());
    node.self.sync = true;
    node.self.is_master = i == 0;
    node.self.master = "sim:0";
    node.self.address = fmt::format("sim:{}", i);
    node.self.host = "sim";
    node.self.pid = static_cast<uint32_t>(1000 + i);
    node.self.heartbeat_timeout = 60s;  // a stopped process is silent here, not lost
    node.link = std::make_unique<SimLink>(network_, node.self.peer);
    rpc::ClientOptions options;
    if (lossy_) options.probe_after = 100ms;
    engine::Member::Events events{[](const cluster::View&) {}, [](const base::Status&) {}, [] {}};
    node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events));
    network_.add(node.self.peer, fmt::format("node {}", i), node.self.address, *node.member,
                 [this, &node] { keeper_.touch(node); });
    node.member->start();
    keeper_.touch(node);
  }

  /// All create the table, add and get; one makes no add, and so delays everybody's get.
  void work() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      shard::Spec spec;
      spec.name = "weights";
      spec.rows = node.values.size();
      node.member->tables().catalogue().create({{std::make_shared<const shard::Spec>(spec)}}, base::kNever,
                                   [this, &node, i](const base::Result<std::vector<table::TableViewRef>>& table) {
                                     if (!table.ok() || i == culprit_) return;
                                     table::Request add;
                                     add.table = table.value().front();
                                     add.kind = table::OpKind::kChange;
                                     add.source = base::Payload::copy(std::as_bytes(std::span(node.values)));
                                     add.table->open_changes.fetch_add(1);
                                     node.member->tables().begin(std::move(add));
                                     table::Request get;
                                     get.table = table.value().front();
                                     get.destination = std::as_writable_bytes(std::span(node.values));
                                     get.operation = std::make_shared<Ignored>();
                                     node.member->tables().begin(std::move(get));
                                     keeper_.touch(node);
                                   });
      keeper_.touch(node);
    }
  }

  void disturb() {
    const size_t times = 1 + random_.below(4);
    for (size_t i = 0; i < times; ++i)
      timeline_.after(Nanos(random_.between(0, 15'000'000'000)), [this] {
        Node& node = nodes_[random_.below(nodes_.size())];
        Node& other = nodes_[random_.below(nodes_.size())];
        const Nanos span(random_.between(100'000'000, 12'000'000'000));
        const uint64_t kind = random_.below(3);
        if (kind == 0 && &node != &other)
          return network_.part(node.self.peer, other.self.peer, span, random_.chance(0.5));
        if (kind == 1) {
          node.stopped = true;  // its own requests may be answered late
          return network_.pause(node.self.peer, span);
        }
        if (kind != 2 || node.member == nullptr) return;
        network_.remove(node.self.peer, false, random_.chance(0.5));
        node.member.reset();
      });
  }

  void ask(size_t i) {
    Node& node = nodes_[i];
    if (node.member == nullptr || node.stopped) return;
    const bool json = random_.chance(0.7);
    enum class Question { kOpen, kAnswered, kGivenUp };
    const auto state = std::make_shared<Question>(Question::kOpen);
    const Nanos asked = timeline_.now();
    ++open_;
    network_.when_running(node.self.peer, [this, &node, json, state] {
      if (node.member == nullptr) return;
      node.member->status().ask({.json = json}, [this, json, state](const std::string& text) {
        const Question before = std::exchange(*state, Question::kAnswered);
        if (before == Question::kAnswered) return timeline_.violated("a request was answered twice");
        if (before == Question::kGivenUp) return;  // its asker was stopped meanwhile
        --open_;
        ++answers_;
        check(text, json);
      });
      keeper_.touch(node);
    });
    timeline_.at(asked + kAnswered, [this, &node, state, i] {
      if (*state != Question::kOpen) return;
      if (node.member != nullptr && !node.stopped)
        timeline_.violated(fmt::format("node {} got no answer for four seconds", i));
      --open_;
      *state = Question::kGivenUp;
    });
  }

  void check(const std::string& text, bool json) {
    const auto wrong = [&](const char* what) { timeline_.violated(fmt::format("{}: {}", what, text)); };
    const bool strict = !disturbed_ && !lossy_;  // on a lossy network it may take long to get that far
    const std::string culprit = fmt::format("worker {}", culprit_);
    if (!json) {
      if (strict &&
          text.find(fmt::format("in get #1 of \"weights\" for {} (has made 0 of 1 adds", culprit)) == std::string::npos)
        wrong("the culprit is not named");
      return;
    }
    const auto read = nlohmann::json::parse(text, nullptr, false);
    if (read.is_discarded()) return wrong("no JSON");
    if (!strict) return;
    size_t gets = 0;
    for (const auto& wait : read["waits"]) {
      if (wait["kind"] != "get") continue;
      ++gets;
      if (wait["table"] != "weights" || wait["awaited"].size() != 1 || wait["awaited"][0]["who"] != culprit)
        return wrong("another than the culprit is waited for");
      if (wait["worker"] == culprit_) return wrong("the culprit waits for itself");
    }
    if (gets != nodes_.size() - 1) wrong("not all that wait are there");
    for (const auto& member : read["members"])
      if (member["answered"] != true) return wrong("somebody has not answered");
  }

  Timeline timeline_;
  Random random_;
  std::vector<Node> nodes_;
  const size_t culprit_;
  const bool disturbed_;
  bool lossy_ = false;
  Network network_;
  Keeper keeper_{timeline_, network_, random_};
  int open_ = 0, answers_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Status requests on virtual time, with network faults from the seed.",
                            [](const mv::sim::SeedRun& asked) { return StuckCluster(asked.seed, asked.verbose).run(); },
                            [](const mv::sim::SeedRun&) { return std::string(); });
}
