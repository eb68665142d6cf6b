#pragma once
// An etcd that keeps the views: one register for all processes, which is linearizable, and a network to it that fails.

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cluster/keeper.hpp"
#include "network.hpp"
#include "random.hpp"
#include "timeline.hpp"

namespace mv::sim {

class SimEtcd {
 public:
  SimEtcd(Timeline& timeline, Network& network, Random random) : timeline_(timeline), network_(network), random_(random) {}

  /// From now on requests and answers get lost, and now and then it is away for a while.
  void begin_faults() {
    loss_ = 0.01 * static_cast<double>(random_.between(0, 20));
    if (!random_.chance(0.5)) return;
    away_from_ = timeline_.now() + Nanos(random_.between(0, 2'000'000'000));
    away_until_ = away_from_ + Nanos(random_.between(1'000'000, 3'000'000'000));
  }
  /// This process does not reach it for a while.
  void cut_off(Peer peer, Nanos span) { cut_off_until_[peer] = timeline_.now() + span; }

  /// A process's connection to it.
  class Client final : public cluster::Keeper {
   public:
    Client(SimEtcd& etcd, Peer self) : etcd_(etcd), self_(self) {}
    void read(Read done) override {
      request([&etcd = etcd_] { return base::Result<Content>(etcd.content_); }, std::move(done));
    }
    void write(uint64_t revision, std::vector<std::byte> view, Written done) override {
      request([&etcd = etcd_, revision, view = std::move(view)] { return etcd.replace(revision, view); }, std::move(done));
    }

   private:
    template <typename Execute, typename Done>
    void request(Execute execute, Done done) {
      const auto answer = [&etcd = etcd_, self = self_, alive = std::weak_ptr(alive_), done = std::move(done)](Nanos when, auto result) {
        etcd.timeline_.at(when, [&etcd, self, alive, done, result = std::move(result)] {
          etcd.network_.when_running(self, [alive, done, result] {
            if (!alive.expired()) done(result);
          });
        });
      };
      const Nanos gives_up = etcd_.timeline_.now() + kPatience;
      etcd_.timeline_.after(etcd_.delay(), [&etcd = etcd_, self = self_, gives_up, execute = std::move(execute), answer] {
        using Result = decltype(execute());
        const bool arrives = etcd.is_reached_by(self);
        Result result = arrives ? execute() : Result(no_answer());
        const bool returns = arrives && etcd.is_reached_by(self);
        returns ? answer(etcd.timeline_.now() + etcd.delay(), std::move(result)) : answer(gives_up, Result(no_answer()));
      });
    }

    SimEtcd& etcd_;
    const Peer self_;
    const std::shared_ptr<int> alive_ = std::make_shared<int>();
  };

 private:
  static constexpr Nanos kPatience = std::chrono::seconds(1);
  static base::Status no_answer() { return base::error(MV_EUNREACHABLE, "etcd does not answer"); }

  base::Result<uint64_t> replace(uint64_t revision, const std::vector<std::byte>& view) {
    if (revision != content_.revision) return base::error(MV_ESTATE, "the revision is {}, not {}", content_.revision, revision);
    content_.revision += 1 + random_.below(3);  // other keys have revisions, too
    content_.view = view;
    return content_.revision;
  }
  Nanos delay() { return Nanos(random_.between(100'000, random_.chance(0.1) ? 300'000'000 : 5'000'000)); }
  bool is_reached_by(Peer peer) {
    const Nanos now = timeline_.now();
    const auto cut = cut_off_until_.find(peer);
    const bool is_cut_off = cut != cut_off_until_.end() && now < cut->second;
    return !is_cut_off && !(now >= away_from_ && now < away_until_) && !random_.chance(loss_);
  }

  Timeline& timeline_;
  Network& network_;
  Random random_;
  cluster::Keeper::Content content_;
  double loss_ = 0;
  Nanos away_from_ = base::kNever, away_until_{0};
  std::map<Peer, Nanos> cut_off_until_;
};

}  // namespace mv::sim
