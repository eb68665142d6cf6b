// tune(): times messages of groups to find what each transport costs, and tries the resulting costs out.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>

#include "api/group/message_group.hpp"
#include "api/group/tuning.hpp"
#include "base/log.hpp"
#include "engine/collective/cost_text.hpp"
#include "math/reduction.hpp"
#include "runtime/tuning_files.hpp"

namespace mv::api {
namespace {

using collective::Basis;
using collective::Kind;
using collective::Operation;
using collective::Sample;
using Messages = std::shared_ptr<MessageGroup>;
using Watch = std::chrono::steady_clock;

constexpr uint64_t kSizes[] = {64, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20};
using Times = std::array<double, std::size(kSizes)>;
/// An all-reduce carries the number of its contributors as well.
constexpr uint64_t kBeside = sizeof(int64_t);
/// Shared memory becomes available shortly after the connection.
constexpr auto kUntilTransportsAreThere = std::chrono::milliseconds(100);
constexpr uint8_t kNoTransport = 255;

double seconds_since(Watch::time_point begun) { return std::chrono::duration<double>(Watch::now() - begun).count(); }

/// The lower quartile.
double quartile(std::vector<double> times) {
  const auto at = times.begin() + static_cast<ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

/// To three digits; further digits are noise.
double rounded(double cost) {
  const std::string text = fmt::format("{:.3g}", cost);
  std::from_chars(text.data(), text.data() + text.size(), cost);
  return cost;
}

/// Costs by which two ranks choose one algorithm or the other at every size.
Basis few_messages() {
  Basis basis;
  basis.costs.transports.fill({1, 0});
  basis.costs.gamma = 0;
  return basis;
}
Basis few_bytes() {
  Basis basis;
  basis.costs.transports.fill({0, 0});
  basis.costs.gamma = 1;
  return basis;
}

/// Seconds per byte of reducing values large enough for it to matter, as recursive doubling does it: values that are
/// still being sent are copied before they are overwritten.
double time_reduction() {
  constexpr size_t kCount = 1 << 20;
  constexpr int kTimes = 24;
  std::vector<float> mine(kCount), theirs(kCount), sent(kCount);
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) {
    const auto begun = Watch::now();
    std::memcpy(sent.data(), mine.data(), kCount * sizeof(float));
    math::reduce_bytes(math::Reduction::kSum, MV_F32, reinterpret_cast<std::byte*>(mine.data()), reinterpret_cast<const std::byte*>(theirs.data()), kCount,
                       math::Operand::kFirst);
    times.push_back(seconds_since(begun));
  }
  return quartile(std::move(times)) / (kCount * sizeof(float));
}

/// One rank's measurement. Its first error ends it on this rank, and on the others too, because they wait in vain.
class Tuner {
 public:
  explicit Tuner(Calls& calls) : calls_(calls) {}

  base::Result<Tuning> run() {
    if (calls_.identity().num_workers < 2)
      return base::Status(MV_ESTATE, "measuring needs at least two workers: start them, for example with `polyverso run -n 2 -- polyverso doctor --tune`");
    calls_.on_loop([&] { before_ = calls_.member().groups().basis(); });
    Tuning tuning;
    base::Status status = measure(tuning);
    calls_.on_loop([&] { calls_.member().groups().choose_by(before_); });
    if (status.ok()) keep(tuning);
    if (status.ok()) status = tune_shared(calls_, tuning);
    // A signal breaks the groups of the other ranks, so nothing can continue after it.
    if (status.code() == MV_EINTR) return base::error(MV_ECANCELED, "a signal interrupted the measurement: {}", status.text());
    if (!status.ok()) return status;
    return tuning;
  }

 private:
  base::Status measure(Tuning& tuning) {
    auto all = open({}, before_);
    if (!all.ok()) return all.status();
    all_ = all.value();
    const auto& setting = all_->engine()->setting();
    tuning.workers = setting.size;
    tuning.hosts = all_->info().hosts;
    if (base::Status status = find_transports(tuning); !status.ok()) return status;
    if (base::Status status = measure_reduction(tuning); !status.ok()) return status;
    for (TransportTuning& transport : tuning.transports)
      if (base::Status status = measure_transport(transport, tuning); !status.ok()) return status;
    return try_out(tuning);
  }

  base::Result<Messages> open(std::vector<int64_t> workers, const Basis& basis) {
    calls_.on_loop([&] { calls_.member().groups().choose_by(basis); });
    auto opened = MessageGroup::open(calls_, std::move(workers), {});
    if (!opened.ok()) return opened.status();
    return std::static_pointer_cast<MessageGroup>(opened.value());
  }

  base::Status barrier() { return all_->run({}, {}).status; }

  base::Status gather(std::span<const uint8_t> own, std::vector<uint8_t>& everybodys) {
    everybodys.resize(own.size() * static_cast<size_t>(all_->engine()->setting().size));
    Operation operation;
    operation.kind = Kind::kAllgather;
    operation.out.push_back({reinterpret_cast<std::byte*>(everybodys.data()), everybodys.size(), MV_RAW});
    operation.in.push_back(reinterpret_cast<const std::byte*>(own.data()));
    return all_->run(std::move(operation), {}).status;
  }

  base::Status tell_all(int64_t worker, std::span<double> numbers) {
    Operation operation;
    operation.kind = Kind::kBroadcast;
    operation.root = static_cast<uint64_t>(worker);
    operation.out.push_back({reinterpret_cast<std::byte*>(numbers.data()), numbers.size(), MV_F64});
    return all_->run(std::move(operation), {}).status;
  }

  std::optional<base::TransportKind> transport_to(size_t worker, std::string* why_not_shm) {
    std::optional<base::TransportKind> transport;
    calls_.on_loop([&] {
      const auto path = calls_.runtime().path_to(all_->engine()->members().peers[worker]);
      if (!path) return;
      transport = path->by;
      *why_not_shm = path->why_not_shm;
    });
    return transport;
  }

  /// All ranks gather what each rank sees of the others, so that they find the same pairs.
  base::Status find_transports(Tuning& tuning) {
    if (base::Status status = barrier(); !status.ok()) return status;
    std::this_thread::sleep_for(kUntilTransportsAreThere);
    const auto& setting = all_->engine()->setting();
    const auto workers = static_cast<size_t>(setting.size), self = static_cast<size_t>(setting.rank);
    std::vector<uint8_t> own(workers, kNoTransport), everybodys;
    std::vector<std::string> why(workers);
    for (size_t worker = 0; worker < workers; ++worker)
      if (const auto transport = worker == self ? std::nullopt : transport_to(worker, &why[worker])) own[worker] = static_cast<uint8_t>(*transport);
    if (base::Status status = gather(own, everybodys); !status.ok()) return status;
    for (size_t a = 0; a < workers; ++a)
      for (size_t b = a + 1; b < workers; ++b) {
        const uint8_t seen = everybodys[a * workers + b];
        if (seen >= base::kTransportNames.size()) continue;
        TransportTuning transport;
        transport.transport = static_cast<base::TransportKind>(seen);
        const bool known = std::any_of(tuning.transports.begin(), tuning.transports.end(), [&](const TransportTuning& other) { return other.transport == transport.transport; });
        transport.beside = setting.layout.hosts[a] == setting.layout.hosts[b];
        if (transport.beside) tuning.basis.beside = transport.transport;
        if (known) continue;
        transport.workers = {static_cast<int64_t>(a), static_cast<int64_t>(b)};
        if (a == self && transport.beside) transport.why_not_shm = why[b];
        tuning.transports.push_back(std::move(transport));
      }
    tuning.between = tuning.basis.beside;
    if (tuning.hosts > 1) {
      const auto by = [&](base::TransportKind kind) {
        return std::any_of(tuning.transports.begin(), tuning.transports.end(), [kind](const TransportTuning& other) { return other.transport == kind; });
      };
      tuning.between = by(base::TransportKind::kMpi) ? base::TransportKind::kMpi : by(base::TransportKind::kUcx) ? base::TransportKind::kUcx : base::TransportKind::kTcp;
    }
    return {};
  }

  /// On worker 0, while the others wait for it.
  base::Status measure_reduction(Tuning& tuning) {
    double gamma = calls_.identity().worker_id == 0 ? time_reduction() : 0;
    if (base::Status status = tell_all(0, {&gamma, 1}); !status.ok()) return status;
    base::log_info("tuning: reducing takes {:.3g} ns per byte", gamma * 1e9);
    tuning.basis.costs.gamma = rounded(gamma);
    return {};
  }

  /// On its two workers, while the others wait for them.
  base::Status measure_transport(TransportTuning& transport, Tuning& tuning) {
    const int64_t self = calls_.identity().worker_id;
    std::array<double, 3> found{};
    if (self == transport.workers[0] || self == transport.workers[1]) {
      auto fit = fit_transport(transport, tuning.basis.costs.gamma);
      if (!fit.ok()) return fit.status();
      found = {fit.value().cost.alpha, fit.value().cost.beta, fit.value().error};
    }
    if (base::Status status = tell_all(transport.workers[0], found); !status.ok()) return status;
    transport.fit = {{rounded(found[0]), rounded(found[1])}, found[2]};
    tuning.basis.costs.transports[static_cast<size_t>(transport.transport)] = transport.fit.cost;
    base::log_info("tuning: {} between workers {} and {}: {:.3g} us per message, {:.3g} ns per byte", base::kTransportNames[static_cast<size_t>(transport.transport)],
                   transport.workers[0], transport.workers[1], found[0] * 1e6, found[1] * 1e9);
    return {};
  }

  base::Result<collective::Fit> fit_transport(const TransportTuning& transport, double gamma) {
    std::vector<Messages> pairs;
    for (const Basis& basis : {few_messages(), few_bytes()}) {
      auto pair = open({transport.workers[0], transport.workers[1]}, basis);
      if (!pair.ok()) return pair.status();
      pairs.push_back(pair.value());
    }
    const auto times = time_allreduces(pairs);
    if (!times.ok()) return times.status();
    std::vector<Sample> samples;
    for (size_t pair = 0; pair < pairs.size(); ++pair)
      for (size_t size = 0; size < std::size(kSizes); ++size) {
        const double messages = pair == 0 ? 1 : 2, seconds = times.value()[pair][size];
        const auto bytes = static_cast<double>(kSizes[size] + kBeside);
        samples.push_back({messages, bytes, seconds - gamma * bytes / messages});
        base::log_debug("tuning: {}, {} bytes, {} messages in a row: {:.1f} us", base::kTransportNames[static_cast<size_t>(transport.transport)], kSizes[size], messages,
                        seconds * 1e6);
      }
    return collective::fit(samples);
  }

  /// For later nodes of this user. Costs of a network that were measured within one machine say nothing about it.
  void keep(const Tuning& tuning) const {
    if (calls_.identity().worker_id != 0) return;
    runtime::TuningEntries costs{{"reduce", fmt::format("reduce={}", tuning.basis.costs.gamma)}};
    for (const TransportTuning& transport : tuning.transports) {
      const bool is_network = transport.transport == base::TransportKind::kTcp || transport.transport == base::TransportKind::kUcx;
      if (is_network && transport.beside) continue;
      costs.emplace(base::kTransportNames[static_cast<size_t>(transport.transport)], collective::write_cost(transport.transport, transport.fit.cost));
    }
    runtime::keep_costs(costs);
  }

  base::Status try_out(Tuning& tuning) {
    auto group = open({}, tuning.basis);
    if (!group.ok()) return group.status();
    const auto times = time_allreduces({group.value()});
    if (!times.ok()) return times.status();
    const collective::Setting& setting = group.value()->engine()->setting();
    for (size_t size = 0; size < std::size(kSizes); ++size)
      tuning.trials.push_back(
          {kSizes[size], collective::choose_allreduce(kSizes[size] + kBeside, setting.layout, setting.costs), times.value()[0][size]});
    return {};
  }

  /// For each group and size, the undisturbed time of an all-reduce: the lower quartile of many. They are spread over
  /// time, so that a disturbance does not hit one size only. The same number on every rank.
  base::Result<std::vector<Times>> time_allreduces(const std::vector<Messages>& groups) {
    constexpr uint64_t kBytesEach = 16 << 20, kLeast = 4, kMost = 64;
    std::vector<float> values(kSizes[std::size(kSizes) - 1] / sizeof(float));
    std::vector<std::array<std::vector<double>, std::size(kSizes)>> taken(groups.size());
    int rounds = 1;
    const auto begun = Watch::now();
    for (int round = -1; round < rounds; ++round) {  // the first round warms up, and shows how many rounds there is time for
      for (size_t group = 0; group < groups.size(); ++group)
        for (size_t size = 0; size < std::size(kSizes); ++size)
          for (uint64_t left = std::clamp(kBytesEach / kSizes[size], kLeast, kMost); left > 0; --left) {
            const auto time = time_allreduce(*groups[group], std::span(values).first(kSizes[size] / sizeof(float)));
            if (!time.ok()) return time.status();
            if (round >= 0) taken[group][size].push_back(time.value());
          }
      if (round >= 0) continue;
      const auto agreed = agree_on_rounds(*groups.front(), seconds_since(begun));
      if (!agreed.ok()) return agreed.status();
      rounds = agreed.value();
    }
    std::vector<Times> times(groups.size());
    for (size_t group = 0; group < groups.size(); ++group)
      for (size_t size = 0; size < std::size(kSizes); ++size) times[group][size] = quartile(std::move(taken[group][size]));
    return times;
  }

  /// The same number on every rank, by the slowest rank's time for a round.
  base::Result<int> agree_on_rounds(MessageGroup& group, double seconds) {
    constexpr double kEnough = 3;  // seconds in total, if the limits below allow it
    constexpr double kFewest = 2, kMost = 12;
    Operation longest;
    longest.kind = Kind::kAllreduce;
    longest.reduction = math::Reduction::kMax;
    longest.out.push_back({reinterpret_cast<std::byte*>(&seconds), 1, MV_F64});
    if (base::Status status = group.run(std::move(longest), {}).status; !status.ok()) return status;
    return static_cast<int>(std::clamp(kEnough / std::max(seconds, 1e-6), kFewest, kMost));
  }

  base::Result<double> time_allreduce(MessageGroup& group, std::span<float> values) {
    Operation operation;
    operation.kind = Kind::kAllreduce;
    operation.out.push_back({reinterpret_cast<std::byte*>(values.data()), values.size(), MV_F32});
    const auto begun = Watch::now();
    if (base::Status status = group.run(std::move(operation), {}).status; !status.ok()) return status;
    return seconds_since(begun);
  }

  Calls& calls_;
  Basis before_;
  Messages all_;
};

}  // namespace

base::Result<Tuning> tune(Calls& calls) { return Tuner(calls).run(); }

}  // namespace mv::api
