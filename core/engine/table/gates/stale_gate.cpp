#include "engine/table/gates/stale_gate.hpp"

#include <algorithm>
#include <utility>

namespace mv::table {

void StaleGate::set_workers(WorkerNames names) {
  names_ = std::move(names);
  workers_.resize(names_->size());
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
  if (!needs) return false;
  missing->clear();
  for (const auto& [worker, what] : behind(*needs))
    *missing += fmt::format("{}{} {}", missing->empty() ? "" : ", ", (*names_)[worker], what);
  return true;
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
  // Not the lost worker's clock: if that was ahead, its successor would wait for the others before its first get. Without other workers, it continues
  // where the last ones were.
  const uint64_t slowest = least();
  workers_[worker].clock = slowest != UINT64_MAX ? slowest : std::ranges::max_element(workers_, {}, &Worker::clock)->clock;
  workers_[worker].active = true;
}

void StaleGate::begins(size_t worker, uint64_t clock) {
  if (!workers_[worker].active) workers_[worker] = {true, clock};
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

std::vector<GateWait> StaleGate::waits() const {
  std::vector<GateWait> waits;
  for (const WaitingGets::Get& get : gets_.all())  // its clock is needs + staleness, because it waits
    waits.push_back({cluster::WaitKind::kStaleGet, get.asked, get.needs + staleness_, behind(get.needs)});
  return waits;
}

std::vector<GateWait::Missing> StaleGate::behind(uint64_t needs) const {
  std::vector<GateWait::Missing> missing;
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].active && workers_[i].clock < needs)
      missing.push_back({i, fmt::format("is at clock {}, {} is needed", workers_[i].clock, needs)});
  return missing;
}

}  // namespace mv::table
