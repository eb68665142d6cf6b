#include "api/group/handover.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include "api/group/device_group.hpp"
#include "base/log.hpp"
#include "engine/collective/reducer.hpp"

namespace mv::api {

namespace {

using collective::Kind;
using collective::Operation;

/// How long MPI may take to make a communicator, once all ranks are there.
constexpr base::Nanos kTimeForTeam = std::chrono::seconds(10);
/// The sizes that are measured, in bytes, and how often each. The first time of each does not count.
constexpr std::array<size_t, 4> kMeasured = {1 << 10, 16 << 10, 128 << 10, 1 << 20};
constexpr int kTimes = 4;
/// MPI has to be so much faster: what is measured once is not exact.
constexpr double kFaster = 0.9;
constexpr uint64_t kNever = UINT64_MAX;

class TeamReducer final : public collective::Reducer {
 public:
  TeamReducer(std::unique_ptr<transport::Team> team, std::string name) : team_(std::move(team)), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  void reduce(const Operation& operation, Done done) override {
    std::vector<transport::Team::Values> values;
    for (size_t i = 0; i < operation.out.size(); ++i) {
      const collective::Array& array = operation.out[i];
      values.push_back({operation.in.empty() ? array.data : operation.in[i], array.data, array.count, array.dtype});
    }
    const bool averages = operation.reduction == math::Reduction::kAverage;
    team_->reduce(std::move(values), averages ? MV_REDUCE_SUM : static_cast<int32_t>(operation.reduction), std::move(done));
  }

 private:
  const std::unique_ptr<transport::Team> team_;
  const std::string name_;
};

/// A team in the making, which the loop and the caller's thread share.
struct Making {
  std::atomic<bool> done{false};
  base::Status status;
  std::unique_ptr<transport::Team> team;  // made and destroyed on the loop
};

/// Makes a team of the group's ranks.
base::Status make_team(Calls& calls, const MessageGroup& group, std::span<const JobPlace> places, const CallOptions& options,
                       const std::shared_ptr<Making>& making) {
  std::vector<int32_t> ranks;
  for (const JobPlace& place : places) ranks.push_back(place.rank);
  const uint64_t key = group.engine()->members().id;
  uint64_t number = 0;
  calls.on_loop([&] {
    number = calls.runtime().teams()->make_team(ranks, key, [making, &calls](base::Result<std::unique_ptr<transport::Team>> made) {
      if (made.ok())
        making->team = std::move(made).value();
      else
        making->status = made.status();
      making->done = true;
      calls.wake();
    });
  });
  const base::Nanos until = std::min(calls.deadline(options, true), base::after(calls.loop().now(), kTimeForTeam));
  const transport::Driven driven = calls.drive_until([&] { return making->done.load(); }, until);
  if (driven == transport::Driven::kDone) return making->status;
  calls.on_loop([&] {
    calls.runtime().teams()->give_up(number);
    making->team.reset();
  });
  return driven == transport::Driven::kTimeout ? base::Status(MV_ETIMEOUT, "MPI has not made a communicator in time") : base::Status(MV_EINTR, "interrupted");
}

base::Status reduce(MessageGroup& group, math::Reduction reduction, std::span<int64_t> values, const CallOptions& options) {
  Operation operation;
  operation.kind = Kind::kAllreduce;
  operation.reduction = reduction;
  operation.out.push_back({reinterpret_cast<std::byte*>(values.data()), values.size(), MV_I64});
  return group.run(std::move(operation), options).status;
}

/// The time of an all-reduce of each size: the least of several, of the slowest rank.
base::Result<std::array<int64_t, kMeasured.size()>> measure(MessageGroup& group, const CallOptions& options) {
  std::array<int64_t, kMeasured.size()> times{};
  std::vector<float> values(kMeasured.back() / sizeof(float));
  for (size_t i = 0; i < kMeasured.size(); ++i) {
    times[i] = INT64_MAX;
    for (int turn = 0; turn < kTimes; ++turn) {
      Operation operation;
      operation.kind = Kind::kAllreduce;
      operation.out.push_back({reinterpret_cast<std::byte*>(values.data()), kMeasured[i] / sizeof(float), MV_F32});
      const auto begun = std::chrono::steady_clock::now();
      if (base::Status status = group.run(std::move(operation), options).status; !status.ok()) return status;
      const int64_t taken = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun).count();
      if (turn > 0) times[i] = std::min(times[i], taken);
    }
  }
  if (base::Status status = reduce(group, math::Reduction::kMax, times, options); !status.ok()) return status;
  return times;
}

/// Measures both, and sets from which size on MPI is used; kNever: it is not faster at the largest.
base::Result<uint64_t> choose(Calls& calls, MessageGroup& group, const std::string& name, const CallOptions& options, std::string& why) {
  const auto library = measure(group, options);
  if (!library.ok()) return library.status();
  calls.on_loop([&] { group.engine()->hand_over_from(kNever); });
  const auto own = measure(group, options);
  if (!own.ok()) return own.status();
  uint64_t from = kNever;
  for (size_t i = kMeasured.size(); i-- > 0;) {
    if (static_cast<double>(library.value()[i]) > kFaster * static_cast<double>(own.value()[i])) break;
    from = kMeasured[i];
  }
  if (from == kMeasured.front()) from = 0;
  const auto us = [](int64_t nanos) { return static_cast<double>(nanos) / 1000; };
  why = fmt::format("measured: {} {}; 1 KiB in {:.0f} us, own {:.0f}, 1 MiB in {:.0f} us, own {:.0f}", name,
                    from == kNever ? "is not faster"
                    : from == 0    ? "is faster"
                                   : fmt::format("is faster from {} KiB on", from >> 10),
                    us(library.value().front()), us(own.value().front()), us(library.value().back()), us(own.value().back()));
  calls.on_loop([&] { group.engine()->hand_over_from(from); });
  return from;
}

}  // namespace

JobPlace job_place(Calls& calls) {
  const std::string& setting = calls.settings().collective;
  JobPlace place;
  place.collective = setting == "own" ? Collective::kOwn : setting == "mpi" ? Collective::kMpi : setting == "nccl" ? Collective::kNccl : Collective::kAuto;
  if (calls.runtime().teams() == nullptr) return place;
  const mv_fabric_about& about = calls.runtime().teams()->about();
  place.job = about.job;
  place.rank = about.rank;
  return place;
}

base::Result<bool> may_hand_over(Calls& calls, MessageGroup& group, const CallOptions& options) {
  int64_t wants = calls.settings().collective == "mpi" || calls.runtime().teams() != nullptr || may_use_devices(calls) ? 1 : 0;
  if (base::Status status = reduce(group, math::Reduction::kMax, {&wants, 1}, options); !status.ok()) return status;
  return wants != 0;
}

Verdict judge(std::span<const JobPlace> places, uint32_t generation, bool shares_memory) {
  const Collective collective = places.front().collective;
  const char* const prefix = collective == Collective::kMpi ? "collective=mpi, but " : "auto: ";
  const auto own = [&](const std::string& why) { return Verdict{false, false, prefix + why}; };
  if (collective == Collective::kOwn) return {false, false, "collective=own"};
  if (collective == Collective::kNccl) return {false, false, "collective=nccl"};
  if (collective == Collective::kAuto && shares_memory) return own("the ranks share memory");
  if (std::ranges::all_of(places, [](const JobPlace& place) { return place.job == 0; })) return own("MPI is not in use, as it is with transport=mpi");
  if (std::ranges::any_of(places, [&](const JobPlace& place) { return place.job != places.front().job; }))
    return own("not all ranks are processes of one MPI job, with MPI in use");
  for (size_t i = 0; i < places.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (places[i].rank == places[k].rank) return own("two ranks are in one process");
  if (generation > 0) return own("the group has shrunk or grown, and MPI may still wait for a lost process");
  return {true, collective == Collective::kAuto, ""};
}

base::Status hand_over(Calls& calls, MessageGroup& group, std::span<const JobPlace> places, const Verdict& verdict, const CallOptions& options) {
  const auto making = std::make_shared<Making>();
  const base::Status made = make_team(calls, group, places, options, making);
  int64_t ready = made.ok() ? 1 : 0;
  base::Status agreed = reduce(group, math::Reduction::kMin, {&ready, 1}, options);
  if (!agreed.ok() || ready == 0) {
    calls.on_loop([&] { making->team.reset(); });
    if (!agreed.ok()) return agreed;
    const std::string why = made.ok() ? "MPI could not be used by another rank, whose log says why" : "MPI could not be used: " + made.text();
    base::log_warn("the all-reduces of a group are not handed over to MPI: {}", why);
    group.set_handover("own", why);
    return {};
  }
  const std::string name = calls.runtime().teams()->about().version;
  calls.on_loop([&] { group.engine()->hand_over_to(std::make_unique<TeamReducer>(std::move(making->team), name), 0); });
  if (!verdict.measures) {
    group.set_handover("mpi", "collective=mpi: " + name);
    return {};
  }
  std::string why;
  const auto from = choose(calls, group, name, options, why);
  if (!from.ok()) return from.status();
  group.set_handover(from.value() == kNever ? "own" : "mpi", why);
  return {};
}

}  // namespace mv::api
