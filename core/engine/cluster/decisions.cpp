#include "engine/cluster/decisions.hpp"

#include <algorithm>
#include <utility>

#include "engine/cluster/patience.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

void Decisions::decide(Change change, Decided done) {
  if (standing_.is_cut_off()) {
    if (done) done(standing_.why_cut_off(), roster_.decided());
    return;
  }
  decisions_.push_back({std::move(change), std::move(done)});
  barrier_.hold(true);
  if (undecided_since_ == base::kNever) {
    undecided_since_ = clock_.now();
    tell_undecided_at_ = base::after(undecided_since_, tell_every());
  }
  write_next();
}

void Decisions::decide_end(base::Peer worker) {
  decide([worker](View& next) {
    Member* const left = next.find(worker);
    if (left == nullptr || left->state != MemberState::kHere) return base::Status(MV_ESTATE, "");
    left->state = MemberState::kFinished;
    return base::Status();
  });
}

void Decisions::write_next() {
  if (keeping_.is_busy() || is_holding_ || decisions_.empty() || !roster_.is_master() || standing_.is_drained() || standing_.is_cut_off()) return;
  View next = roster_.decided();
  for (Decision& decision : decisions_) decision.refused = decision.change(next);
  const bool changes = std::ranges::any_of(decisions_, [](const Decision& decision) { return decision.refused.ok(); });
  if (!changes) {
    end_first(decisions_.size(), roster_.decided());
    return barrier_.hold(!decisions_.empty());
  }
  ++next.epoch;
  name_voters(next);
  writing_ = decisions_.size();
  keeping_.write(next, [this, next](const base::Status& status) {
    const size_t count = std::exchange(writing_, 0);
    if (status.ok()) hold(next, count);
  });
}

void Decisions::end_first(size_t count, const View& view) {
  for (size_t i = 0; i < count && !decisions_.empty(); ++i) {
    Decision over = std::move(decisions_.front());
    decisions_.pop_front();
    if (over.done) over.done(over.refused, view);
  }
  undecided_since_ = decisions_.empty() ? base::kNever : clock_.now();
  if (decisions_.empty()) tell_undecided_at_ = base::kNever;
}

void Decisions::hold(const View& next, size_t count) {
  keeping_.learn(next);
  publisher_.follow(next);
  publisher_.tell_members(next);
  end_first(count, next);
  is_holding_ = true;
  holds_(next);
  is_holding_ = false;
  barrier_.hold(!decisions_.empty());
  write_next();
}

void Decisions::drop(const base::Status& why) {
  writing_ = 0;
  for (const Decision& decision : std::exchange(decisions_, {}))
    if (decision.done) decision.done(why, roster_.decided());
}

base::Nanos Decisions::patience_until() const { return base::after(undecided_since_, patience_without_decision(roster_.self())); }

std::string Decisions::why_undecided() const {
  const base::Status trouble = keeping_.trouble();
  if (trouble.ok()) return "this process, the master, is cut off from most of the processes that decide about the members";
  return fmt::format("this process, the master, could decide nothing about the members for {:.3g} s: {}",
                     base::seconds(patience_without_decision(roster_.self())), trouble.text());
}

bool Decisions::is_to_tell(base::Nanos now) {
  if (now < tell_undecided_at_) return false;
  tell_undecided_at_ = now + tell_every();
  return true;
}

base::Nanos Decisions::next_deadline() const { return is_undecided() ? std::min(patience_until(), tell_undecided_at_) : base::kNever; }

}  // namespace mv::cluster
