// sim_members: the membership of many processes. Workers are lost, and others take their places, one after another and many at once. In the end
// each member has the master's view, and no change has cost a member more than a few hundred bytes, however many members there are.

#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "keeper.hpp"
#include "light.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;
using cluster::MemberState;

constexpr size_t kMostReal = 200;      ///< members with all engines; the others are light
constexpr double kMostBytes = 600;     ///< that a change may cost each member
constexpr Nanos kHeartbeat = 20s, kFormed = 20s, kSettled = 30s;

/// Counts what the master sends about the membership.
class CountingLink final : public base::Link {
 public:
  CountingLink(Network& network, Peer self) : inner_(network, self) {}
  void dial(const std::string& address) override { inner_.dial(address); }
  void send(Peer to, const base::Frame& frame) override {
    const auto* message = flatbuffers::GetRoot<wire::Message>(frame.head.data() + wire::kPrefixBytes);
    if (message->body_type() == wire::Body::View) (message->seq() != 0 ? at_join : bytes) += frame.bytes();
    inner_.send(to, frame);
  }
  void close(Peer peer) override { inner_.close(peer); }
  uint64_t bytes = 0, at_join = 0;

 private:
  SimLink inner_;
};

class Crowd {
 public:
  Crowd(const SeedRun& asked)
      : random_(Random::mix(asked.seed)),
        count_(asked.nodes != 0 ? asked.nodes : static_cast<size_t>(random_.between(3, 60))),
        tells_(asked.nodes != 0),
        disturbed_(asked.nodes == 0 && random_.chance(0.7)),
        network_(timeline_, random_.fork(), conditions()),
        places_(count_) {
    network_.verbose = asked.verbose;
  }

  std::string run() {
    for (size_t rank = 0; rank < count_; ++rank)
      timeline_.after(Nanos(random_.between(0, 500'000'000)), [this, rank] { start(rank); });
    timeline_.at(kFormed, [this] { formed(); });
    const size_t changes = std::min<size_t>(20, count_ - 1);
    Nanos at = kFormed;
    for (size_t i = 0; i < changes; ++i) timeline_.at(at += 2s, [this] { change(); });
    timeline_.at(at += 10s, [this, changes] { measured("changes one by one", changes); });
    for (size_t i = 0; i < 3 * changes; ++i) timeline_.at(at + Nanos(random_.between(0, 1'000'000'000)), [this] { change(); });
    timeline_.at(at += 10s, [this, changes] { measured("changes at once", 3 * changes); });
    if (disturbed_) {
      for (size_t i = 0; i < 4 * changes; ++i) {
        timeline_.at(at + Nanos(random_.between(0, 8'000'000'000)), [this] { change(); });
        timeline_.at(at + Nanos(random_.between(0, 8'000'000'000)), [this] { disturb(); });
      }
      at += 8s;
    }
    timeline_.at(at + kSettled, [this] { compare(); });
    while (timeline_.violation().empty() && !is_over_ && timeline_.step(at + kSettled)) {
    }
    return timeline_.violation();
  }

 private:
  struct Place {
    Kept real;
    std::unique_ptr<LightMember> light;
    std::unique_ptr<CountingLink> counting;  ///< the master's
    Peer peer = base::kNobody;
    bool is_alive = false;
  };

  Conditions conditions() {
    Conditions conditions;
    conditions.latency = Nanos(random_.between(20'000, 500'000));
    conditions.jitter = Nanos(random_.between(0, 3'000'000));
    conditions.lossy = is_lossy_ = disturbed_ && random_.chance(0.6);
    if (is_lossy_) conditions.drop = conditions.duplicate = conditions.late = 0.01 * static_cast<double>(random_.between(1, 15));
    conditions.staged = tells_ ? 0 : 0.75;  // whole payloads are not copied, as they are large there
    return conditions;
  }

  cluster::Self self_of(size_t rank) {
    cluster::Self self;
    self.peer = random_.next() | 1;
    self.rank = static_cast<int64_t>(rank);
    self.nodes = static_cast<uint32_t>(count_);
    self.role = rank == 0 ? MV_ROLE_ALL : MV_ROLE_WORKER;
    self.is_master = rank == 0;
    self.master = "sim:0";
    self.address = fmt::format("sim:{}", rank);
    self.host = fmt::format("host-{}", rank / 64);
    self.pid = static_cast<uint32_t>(random_.below(4'000'000));
    self.heartbeat_timeout = kHeartbeat;
    return self;
  }

  void start(size_t rank) {
    Place& place = places_[rank];
    cluster::Self self = self_of(rank);
    place.peer = self.peer;
    place.is_alive = true;
    const std::string name = fmt::format("rank {}", rank);
    if (rank % std::max<size_t>(1, count_ / kMostReal) != 0) {
      place.light = std::make_unique<LightMember>(timeline_, network_, views_, self);
      network_.add(self.peer, name, self.address, *place.light, [] {});
      place.light->start();
      return beat(rank, self.peer);
    }
    Kept& node = place.real;
    node.self = self;
    node.flush_asked = false;
    node.armed = base::kNever;
    node.link = std::make_unique<SimLink>(network_, self.peer);
    if (rank == 0) place.counting = std::make_unique<CountingLink>(network_, self.peer);
    rpc::ClientOptions options;
    if (is_lossy_) options.probe_after = 100ms;
    engine::Member::Events events{[](const cluster::View&) {}, [](const base::Status&) {}, [] {}};
    base::Link& link = rank == 0 ? static_cast<base::Link&>(*place.counting) : *node.link;
    node.member = std::make_unique<engine::Member>(timeline_, link, self, options, std::move(events));
    network_.add(self.peer, name, self.address, *node.member, [this, &node] { keeper_.touch(node); });
    node.member->start();
    keeper_.touch(node);
  }
  void beat(size_t rank, Peer peer) {
    timeline_.after(kHeartbeat / 10, [this, rank, peer] {
      Place& place = places_[rank];
      if (place.peer != peer || place.light == nullptr) return;
      network_.when_running(peer, [this, rank, peer] {
        if (places_[rank].peer == peer && places_[rank].light != nullptr) places_[rank].light->beat();
      });
      beat(rank, peer);
    });
  }

  /// A worker is lost, or another process takes the place of one that was lost before.
  void change() {
    const size_t rank = 1 + random_.below(count_ - 1);
    Place& place = places_[rank];
    if (!place.is_alive) return start(rank);
    place.is_alive = false;
    network_.remove(place.peer, false, true);
    place.real.member.reset();
    // Its timers still refer to the light one.
    if (place.light != nullptr) ended_.push_back(std::move(place.light));
  }
  void disturb() {
    const Place& place = places_[1 + random_.below(count_ - 1)];
    if (!place.is_alive) return;
    const Nanos span(random_.between(1'000'000, 3'000'000'000));
    random_.chance(0.7) ? network_.part(places_[0].peer, place.peer, span, random_.chance(0.8)) : network_.pause(place.peer, span);
  }

  void formed() {
    for (size_t rank = 0; rank < count_; ++rank)
      if (view_of(places_[rank]) == nullptr) timeline_.violated(fmt::format("rank {} has not joined", rank));
    if (tells_) fmt::print("{} members: {:.0f} bytes for each at the start\n", count_, double(places_[0].counting->at_join) / double(count_ - 1));
    places_[0].counting->bytes = 0;
  }
  void measured(const char* what, size_t changes) {
    const double cost = double(std::exchange(places_[0].counting->bytes, 0)) / double(count_ - 1) / double(changes);
    if (tells_) fmt::print("{} members: {:.0f} bytes for each and change, {} {}\n", count_, cost, changes, what);
    if (!is_lossy_ && cost > kMostBytes) timeline_.violated(fmt::format("{:.0f} bytes for each member and change", cost));
  }

  const cluster::View* view_of(const Place& place) const {
    if (place.light != nullptr) return place.light->view().get();
    if (place.real.member == nullptr || place.real.member->cluster().is_joining()) return nullptr;
    return &place.real.member->cluster().view();
  }
  void compare() {
    is_over_ = true;
    const cluster::View& truth = *view_of(places_[0]);
    const cluster::View* equal = nullptr;
    for (size_t rank = 0; rank < count_; ++rank) {
      const Place& place = places_[rank];
      const cluster::Member& member = *truth.at(static_cast<uint32_t>(rank));
      if (place.is_alive != (member.state == MemberState::kHere)) timeline_.violated(fmt::format("the master has a wrong state of rank {}", rank));
      if (!place.is_alive) continue;
      if (member.peer != place.peer) timeline_.violated(fmt::format("the master has not noticed that rank {} was replaced", rank));
      const cluster::View* const view = view_of(place);
      if (view == equal) continue;
      if (view == nullptr || view->epoch != truth.epoch || view->members != truth.members)
        return timeline_.violated(fmt::format("rank {} has another view than the master", rank));
      if (place.light != nullptr) equal = view;
    }
  }

  Timeline timeline_;
  Random random_;
  const size_t count_;
  const bool tells_, disturbed_;
  bool is_lossy_ = false;
  Network network_;
  SharedViews views_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<LightMember>> ended_;
  Keeper keeper_{timeline_, network_, random_};
  bool is_over_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Losses and replacements of many members, on virtual time, with network faults from the seed.",
                            [](const mv::sim::SeedRun& asked) { return Crowd(asked).run(); },
                            [](const mv::sim::SeedRun&) { return std::string(); });
}
