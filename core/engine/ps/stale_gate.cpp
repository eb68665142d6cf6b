#include "engine/ps/stale_gate.hpp"

#include <algorithm>
#include <utility>

namespace mv::ps {

void StaleGate::set_workers(std::vector<std::string> names) {
  workers_.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) workers_[i].name = std::move(names[i]);
}

void StaleGate::restart(uint64_t clock) {
  for (Worker& worker : workers_) worker.clock = clock;
}

void StaleGate::clock(size_t worker, uint64_t clock) {
  workers_[worker].clock = std::max(workers_[worker].clock, clock);
  serve();
}

void StaleGate::get(const rpc::Asked& asked, uint64_t clock) {
  gets_.add(asked, needed(staleness_, clock));
  serve();
}

bool StaleGate::withdraw(const rpc::Asked& asked, std::string* missing) {
  const auto needs = gets_.withdraw(asked);
  if (needs) *missing = behind(*needs);
  return needs.has_value();
}

void StaleGate::finished(size_t worker) {
  workers_[worker].active = false;
  serve();
}

void StaleGate::lost(size_t worker, const base::Status& why) {
  if (!std::exchange(workers_[worker].active, false)) return;
  for (const rpc::Asked& asked : gets_.take_beyond(workers_[worker].clock))
    owner_.fail_gated(asked, base::error(MV_EPEERLOST, "table \"{}\": {}", table_, why.text()));
  serve();
}

void StaleGate::joined(size_t worker) {
  if (workers_[worker].active) return;
  // Not where the lost one stood: if that was ahead, its successor would wait for the others before its first get.
  const uint64_t slowest = least();
  if (slowest != UINT64_MAX) workers_[worker].clock = slowest;
  workers_[worker].active = true;
}

uint64_t StaleGate::least() const {
  uint64_t least = UINT64_MAX;
  for (const Worker& worker : workers_)
    if (worker.active) least = std::min(least, worker.clock);
  return least;
}

void StaleGate::serve() {
  gets_.serve([this] { return least(); }, [this](const rpc::Asked& asked) { owner_.serve_stale(asked); });
}

std::string StaleGate::missing() const { return gets_.empty() ? "" : behind(gets_.first_need()); }

std::string StaleGate::behind(uint64_t needs) const {
  std::string names;
  for (const Worker& worker : workers_) {
    if (!worker.active || worker.clock >= needs) continue;
    names += fmt::format("{}{} is at clock {}, {} is needed", names.empty() ? "" : ", ", worker.name, worker.clock, needs);
  }
  return names;
}

}  // namespace mv::ps
