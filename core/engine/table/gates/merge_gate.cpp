#include "engine/table/gates/merge_gate.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/per_thread.hpp"

namespace mv::table {

namespace {
/// A correct worker is never further ahead than this: its window holds fewer adds.
constexpr uint64_t kMostAhead = 1 << 20;
}  // namespace

void MergeGate::set_workers(WorkerNames names) {
  names_ = std::move(names);
  first_.resize(names_->size());
}

MergeGate::Round& MergeGate::round_at(uint64_t number) {
  for (; open_ <= number - merged_; ++open_) {
    if (open_ == rounds_.size()) rounds_.emplace_back();
    rounds_[open_].shares.assign(first_.size(), Share());
  }
  return rounds_[number - merged_];
}

void MergeGate::change(size_t worker, const rpc::Asked& asked, uint64_t number, uint64_t stripe, uint32_t of) {
  if (number < merged_ || number - merged_ > kMostAhead)
    return owner_.fail_gated(asked, base::error(MV_EPROTOCOL, "table \"{}\": {} adds to round {}, but round {} is open", table_,
                                                (*names_)[worker], number, merged_));
  Round& round = round_at(number);
  Share& share = round.shares[worker];
  const bool by_row = stripe == kRows;
  if (share.here > 0 && (share.of != of || share.by_row != by_row || share.whole()))
    return owner_.fail_gated(asked, base::error(MV_EPROTOCOL, "table \"{}\": the parts of {}'s add to round {} do not fit together",
                                                table_, (*names_)[worker], number));
  ++share.here;
  share.of = of;
  share.by_row = by_row;
  auto found = std::ranges::lower_bound(round.stripes, stripe, {}, &Stripe::number);
  if (found == round.stripes.end() || found->number != stripe) found = round.stripes.insert(found, {stripe, {}});
  std::vector<Contribution>& parts = found->parts;
  const auto behind = std::find_if(parts.begin(), parts.end(), [&](const Contribution& part) { return part.worker > worker; });
  parts.insert(behind, {worker, asked});
  if (number == merged_) owner_.accept(asked);
  advance();
}

bool MergeGate::withdraw(const rpc::Asked& asked, std::string* missing) {
  if (!gets_.withdraw(asked)) return false;
  std::string names;
  for (const auto& [worker, what] : this->missing()) names += fmt::format("{}{}", names.empty() ? "" : ", ", (*names_)[worker]);
  *missing = fmt::format("round {} waits for {}", merged_, names);
  return true;
}

void MergeGate::begins(size_t worker, uint64_t round) {
  first_[worker] = round;
  advance();
}

bool MergeGate::can_begin(size_t worker, uint64_t round) const {
  if (round < merged_) return false;
  for (uint64_t ahead = round - merged_; ahead < open_; ++ahead)
    if (rounds_[ahead].shares[worker].here > 0) return false;
  return true;
}

std::vector<base::Peer> MergeGate::lost(size_t worker, const base::Status& why) {
  std::vector<base::Peer> told;
  if (!counts_on(worker)) return told;
  uint64_t reached = merged_;  // rounds that have its complete part
  while (reached - merged_ < open_ && rounds_[reached - merged_].shares[worker].whole()) ++reached;
  for (const rpc::Asked& asked : gets_.take_beyond(reached)) {
    told.push_back(asked.client);
    owner_.fail_gated(asked, base::error(MV_EPEERLOST, "table \"{}\": {}", table_, why.text()));
  }
  finished(worker);
  return told;
}

void MergeGate::joined(size_t worker) {
  first_[worker] = 0;
  first_[worker] = next_round(worker);
}

void MergeGate::restart(uint64_t round) {
  const base::Status gone = base::error(MV_ECANCELED, "table \"{}\": a checkpoint was loaded", table_);
  open_ = 0;
  for (const Round& open : std::exchange(rounds_, {}))
    for (const Stripe& stripe : open.stripes)
      for (const Contribution& part : stripe.parts) owner_.fail_gated(part.asked, gone);
  merged_ = round;
  for (uint64_t& first : first_)
    if (first != UINT64_MAX) first = round;
  owner_.on_merged();
  serve();
}

uint64_t MergeGate::next_round(size_t worker) const {
  uint64_t next = merged_;
  while (next - merged_ < open_ && rounds_[next - merged_].shares[worker].here > 0) ++next;
  return first_[worker] == UINT64_MAX ? next : std::max(first_[worker], next);
}

/// Whether every worker that the gate waits for has given its part of the stripe, or will give none.
bool MergeGate::is_ready(const Round& round, const Stripe& stripe) const {
  for (size_t worker = 0; worker < first_.size(); ++worker) {
    const Share& share = round.shares[worker];
    if (!awaits(worker) && share.here == 0) continue;
    const bool left = !awaits(worker);  // its missing parts will never come
    if (stripe.number == kRows) {
      if (share.by_row ? !share.whole() && !left : share.here == 0) return false;
      continue;
    }
    if (share.here == 0) return false;
    if (share.by_row || left || share.whole()) continue;
    if (std::none_of(stripe.parts.begin(), stripe.parts.end(), [&](const Contribution& part) { return part.worker == worker; })) return false;
  }
  return true;
}

bool MergeGate::is_whole(const Round& round) const {
  bool any = false;
  for (size_t worker = 0; worker < first_.size(); ++worker) {
    if (awaits(worker) && !round.shares[worker].whole()) return false;
    any = any || round.shares[worker].here > 0;
  }
  return any;
}

namespace {
/// Scratch memory of the loop's thread, for the parts of a stripe.
std::vector<rpc::Asked>& parts_room() { return base::per_thread<std::vector<rpc::Asked>>(); }
}  // namespace

void MergeGate::merge_stripe(Stripe& stripe) {
  std::vector<rpc::Asked> parts = std::move(parts_room());  // the owner may merge another table meanwhile
  parts.clear();
  for (const Contribution& part : stripe.parts) parts.push_back(part.asked);
  stripe.parts.clear();
  owner_.merge(parts);
  parts_room() = std::move(parts);
}

/// Merges the ready stripes of the oldest round. The owner's callbacks may bring new stripes.
void MergeGate::merge_stripes() {
  for (size_t at = 0; at < oldest().stripes.size(); ++at) {
    Stripe& stripe = oldest().stripes[at];
    if (stripe.parts.empty() || !is_ready(oldest(), stripe)) continue;
    const uint64_t number = stripe.number;
    merge_stripe(stripe);
    while (oldest().stripes[at].number != number) ++at;
  }
}

/// A later round reuses its memory.
void MergeGate::forget_oldest() {
  std::rotate(rounds_.begin(), rounds_.begin() + 1, rounds_.begin() + static_cast<ptrdiff_t>(open_));
  --open_;
  ++merged_;
}

void MergeGate::accept_oldest() {
  std::vector<rpc::Asked> parts;
  for (const Stripe& stripe : oldest().stripes)
    for (const Contribution& part : stripe.parts) parts.push_back(part.asked);
  for (const rpc::Asked& asked : parts) owner_.accept(asked);
}

void MergeGate::advance() {
  if (std::exchange(advancing_, true)) return;  // the owner's callbacks may lead back here
  while (open_ > 0) {
    merge_stripes();
    if (!oldest().is_merged() || !is_whole(oldest())) break;
    forget_oldest();
    owner_.on_merged();
    if (open_ > 0) accept_oldest();
  }
  advancing_ = false;
  serve();
}

void MergeGate::serve() {
  gets_.serve([this] { return merged_; }, [this](const rpc::Asked& asked) { owner_.serve_get(asked); });
}

std::vector<GateWait> MergeGate::waits() const {
  std::vector<GateWait> waits;
  const std::vector<GateWait::Missing> missing = this->missing();
  for (const WaitingGets::Get& get : gets_.all()) waits.push_back({cluster::WaitKind::kMergedGet, get.asked, get.needs, missing});
  std::set<size_t> workers;
  for (size_t i = 1; i < open_ && workers.size() < first_.size(); ++i)  // of each worker, the first message that is not for the oldest round
    for (const Stripe& stripe : rounds_[i].stripes)
      for (const Contribution& part : stripe.parts)
        if (workers.insert(part.worker).second) waits.push_back({cluster::WaitKind::kAdd, part.asked, merged_ + i + 1, missing});
  return waits;
}

/// The workers that the oldest round waits for.
std::vector<GateWait::Missing> MergeGate::missing() const {
  std::vector<GateWait::Missing> missing;
  for (size_t worker = 0; worker < first_.size(); ++worker)
    if (awaits(worker) && (open_ == 0 || !rounds_.front().shares[worker].whole()))
      missing.push_back({worker, fmt::format("has not made add #{}", merged_ + 1)});
  return missing;
}

}  // namespace mv::table
