#include "engine/ps/merge_gate.hpp"

#include <algorithm>
#include <utility>

namespace mv::ps {

namespace {
/// A round that no honest worker is in yet: its window holds fewer adds.
constexpr uint64_t kMostAhead = 1 << 20;
}  // namespace

void MergeGate::set_workers(std::vector<std::string> names) {
  workers_.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) workers_[i].name = std::move(names[i]);
}

MergeGate::Round& MergeGate::round_at(uint64_t number) {
  while (rounds_.size() <= number - merged_) {
    rounds_.emplace_back();
    rounds_.back().shares.resize(workers_.size());
  }
  return rounds_[number - merged_];
}

void MergeGate::change(size_t worker, const rpc::Asked& asked, uint64_t number, uint64_t lane, uint32_t of) {
  if (number < merged_ || number - merged_ > kMostAhead)
    return owner_.fail_gated(asked, base::error(MV_EPROTOCOL, "table \"{}\": {} adds to round {}, round {} is open", table_,
                                                workers_[worker].name, number, merged_));
  Round& round = round_at(number);
  Share& share = round.shares[worker];
  const bool by_row = lane == kRows;
  if (share.here > 0 && (share.of != of || share.by_row != by_row || share.whole()))
    return owner_.fail_gated(asked, base::error(MV_EPROTOCOL, "table \"{}\": the parts of {}'s add to round {} do not fit together",
                                                table_, workers_[worker].name, number));
  ++share.here;
  share.of = of;
  share.by_row = by_row;
  auto& parts = round.lanes[lane];
  const auto behind = std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.worker > worker; });
  parts.insert(behind, {worker, asked});
  if (number == merged_) owner_.accept(asked);
  advance();
}

void MergeGate::get(const rpc::Asked& asked, uint64_t adds) {
  gets_.add(asked, adds);
  serve();
}

bool MergeGate::withdraw(const rpc::Asked& asked, std::string* missing) {
  if (!gets_.withdraw(asked)) return false;
  std::string names;
  for (const auto& [worker, what] : this->missing()) names += fmt::format("{}{}", names.empty() ? "" : ", ", workers_[worker].name);
  *missing = fmt::format("round {} waits for {}", merged_, names);
  return true;
}

void MergeGate::begins(size_t worker, uint64_t round) {
  workers_[worker].first = round;
  advance();
}

void MergeGate::lost(size_t worker, const base::Status& why) {
  if (workers_[worker].first == UINT64_MAX) return;
  uint64_t reached = merged_;  // rounds that have all of its part
  while (reached - merged_ < rounds_.size() && rounds_[reached - merged_].shares[worker].whole()) ++reached;
  for (const rpc::Asked& asked : gets_.take_beyond(reached))
    owner_.fail_gated(asked, base::error(MV_EPEERLOST, "table \"{}\": {}", table_, why.text()));
  finished(worker);
}

void MergeGate::joined(size_t worker) {
  workers_[worker].first = 0;
  workers_[worker].first = next_round(worker);
}

void MergeGate::restart(uint64_t round) {
  const base::Status gone = base::error(MV_ECANCELED, "table \"{}\": a checkpoint was loaded", table_);
  for (const Round& open : std::exchange(rounds_, {}))
    for (const auto& [lane, parts] : open.lanes)
      for (const Part& part : parts) owner_.fail_gated(part.asked, gone);
  merged_ = round;
  for (Worker& worker : workers_)
    if (worker.first != UINT64_MAX) worker.first = round;
  owner_.on_merged();
  serve();
}

uint64_t MergeGate::next_round(size_t worker) const {
  uint64_t next = merged_;
  while (next - merged_ < rounds_.size() && rounds_[next - merged_].shares[worker].here > 0) ++next;
  const uint64_t first = workers_[worker].first;
  return first == UINT64_MAX ? next : std::max(first, next);
}

/// Whether everyone who is waited for has given its part of the lane, or will give none.
bool MergeGate::is_ready(const Round& round, uint64_t lane, const std::vector<Part>& parts) const {
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    const Share& share = round.shares[worker];
    if (!awaits(worker) && share.here == 0) continue;
    const bool left = !awaits(worker);  // what of it is missing never comes
    if (lane == kRows) {
      if (share.by_row ? !share.whole() && !left : share.here == 0) return false;
      continue;
    }
    if (share.here == 0) return false;
    if (share.by_row || left || share.whole()) continue;
    if (std::none_of(parts.begin(), parts.end(), [&](const Part& part) { return part.worker == worker; })) return false;
  }
  return true;
}

bool MergeGate::is_whole(const Round& round) const {
  bool any = false;
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    if (awaits(worker) && !round.shares[worker].whole()) return false;
    any = any || round.shares[worker].here > 0;
  }
  return any;
}

void MergeGate::merge_lane(std::vector<Part> parts) {
  std::vector<rpc::Asked> asked;
  asked.reserve(parts.size());
  for (const Part& part : parts) asked.push_back(part.asked);
  owner_.merge(asked);
}

void MergeGate::advance() {
  if (std::exchange(advancing_, true)) return;  // what an owner does may lead back here
  while (!rounds_.empty()) {
    Round& round = rounds_.front();
    for (auto lane = round.lanes.begin(); lane != round.lanes.end();) {
      if (!is_ready(round, lane->first, lane->second)) {
        ++lane;
        continue;
      }
      const std::vector<Part> parts = std::move(lane->second);
      lane = round.lanes.erase(lane);
      merge_lane(parts);
    }
    if (!round.lanes.empty() || !is_whole(round)) break;
    rounds_.pop_front();
    ++merged_;
    owner_.on_merged();
    if (rounds_.empty()) break;
    for (const auto& [lane, parts] : std::map(rounds_.front().lanes))
      for (const Part& part : parts) owner_.accept(part.asked);
  }
  advancing_ = false;
  serve();
}

void MergeGate::serve() {
  gets_.serve([this] { return merged_; }, [this](const rpc::Asked& asked) { owner_.serve_get(asked); });
}

std::vector<GateWait> MergeGate::waits() const {
  std::vector<GateWait> waits;
  for (const WaitingGets::Get& get : gets_.all()) waits.push_back({cluster::WaitKind::kMergedGet, get.asked, get.needs, missing()});
  return waits;
}

/// Whom the oldest round waits for.
std::vector<GateWait::Missing> MergeGate::missing() const {
  std::vector<GateWait::Missing> missing;
  for (size_t worker = 0; worker < workers_.size(); ++worker)
    if (awaits(worker) && (rounds_.empty() || !rounds_.front().shares[worker].whole()))
      missing.push_back({worker, fmt::format("has not made add #{}", merged_ + 1)});
  return missing;
}

}  // namespace mv::ps
