#include "engine/cluster/quorum_keeper.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

using namespace std::chrono_literals;
using wire::VoteWord;

namespace {
/// The master's ballot without a first phase. All others are at least 1 << kRankBits.
constexpr uint64_t kFirstBallot = 1;
constexpr int kRankBits = 20;
constexpr base::Nanos kAskAgain = 20ms, kAskSeldom = 500ms;
}  // namespace

bool QuorumKeeper::is_quorum(const View& view, const std::set<base::Peer>& voters) {
  size_t all = 0, with = 0;
  bool has_master = false;
  for (const Member& member : view.members) {
    if (!member.votes) continue;
    ++all;
    if (!voters.contains(member.peer)) continue;
    ++with;
    has_master |= member.peer == view.master;
  }
  return 2 * with > all || (has_master && 2 * with == all);
}

uint64_t QuorumKeeper::next_ballot(uint64_t above) const {
  const Member* const self = decided_.find(self_);
  const uint64_t round = (std::max({above, last_ballot_, promised_}) >> kRankBits) + 1;
  return (round << kRankBits) | (self != nullptr ? self->rank : 0);
}

// ---- reads and writes

void QuorumKeeper::read(Read done) {
  Attempt attempt;
  attempt.read = std::move(done);
  begin(std::move(attempt));
}

void QuorumKeeper::write(uint64_t revision, std::vector<std::byte> view, Written done) {
  if (revision != decided_.epoch) return done(base::error(MV_ESTATE, "another list of members was decided meanwhile"));
  auto mine = from_bytes(view);
  if (!mine.ok()) return done(mine.status());
  if (mine.value().epoch != instance()) return done(base::error(MV_EINVAL, "the list of members does not have the next number"));
  Attempt attempt;
  attempt.written = std::move(done);
  attempt.mine = std::move(mine).value();
  begin(std::move(attempt));
}

void QuorumKeeper::begin(Attempt attempt) {
  if (attempt_) end(base::error(MV_EUNREACHABLE, "another read or write has begun"));
  if (decided_.find(self_) == nullptr) {  // ballots are told apart by the proposers' ranks
    attempt_ = std::move(attempt);
    return end(base::error(MV_EUNREACHABLE, "this process is no member"));
  }
  attempt.until = clock_.now() + patience_;
  attempt.instance = instance();
  attempt.pause = kAskAgain;
  attempt_ = std::move(attempt);
  const bool is_first = decided_.master == self_ && promised_ <= kFirstBallot && accepted_ == 0 && !first_is_used_;
  if (attempt_->mine && (is_first || prepared_ != 0)) {
    attempt_->ballot = is_first ? kFirstBallot : std::exchange(prepared_, 0);
    attempt_->proposed = attempt_->mine;
    first_is_used_ |= is_first;
    return propose();
  }
  prepare();
}

void QuorumKeeper::prepare() {
  prepared_ = 0;
  Attempt& attempt = *attempt_;
  attempt.instance = instance();
  attempt.ballot = last_ballot_ = next_ballot(attempt.highest);
  attempt.best = attempt.highest = 0;
  attempt.found.reset();
  attempt.proposed.reset();
  attempt.agreed.clear();
  attempt.again = clock_.now() + attempt.pause;
  ask({VoteWord::Prepare, instance(), attempt.ballot, 0, std::nullopt, decided_});
}

void QuorumKeeper::propose() {
  Attempt& attempt = *attempt_;
  attempt.agreed.clear();
  attempt.again = clock_.now() + attempt.pause;
  ask({VoteWord::Accept, instance(), attempt.ballot, 0, attempt.proposed, decided_});
}

/// Asks all voters that have not agreed.
void QuorumKeeper::ask(const Vote& vote) {
  std::vector<base::Peer> voters;
  for (const Member& member : decided_.members)
    if (member.votes && member.peer != self_ && !attempt_->agreed.contains(member.peer)) voters.push_back(member.peer);
  const Member* const self = decided_.find(self_);
  for (const base::Peer voter : voters) events_.send(voter, vote);
  if (self != nullptr && self->votes && !attempt_->agreed.contains(self_)) on_vote(self_, answer(self_, vote));
}

void QuorumKeeper::end(const base::Status& status) {
  Attempt attempt = std::move(*attempt_);
  attempt_.reset();
  if (attempt.read) attempt.read(status.ok() ? base::Result<Content>(Content{decided_.epoch, to_bytes(decided_)}) : base::Result<Content>(status));
  if (attempt.written) attempt.written(status.ok() ? base::Result<uint64_t>(decided_.epoch) : base::Result<uint64_t>(status));
}

// ---- decisions

void QuorumKeeper::learn(const View& view) {
  if (view.epoch <= decided_.epoch) return;
  take(view);
  settle();
}

void QuorumKeeper::has_decided(const View& view) {
  if (view.epoch <= decided_.epoch) return;
  const bool is_mine = attempt_ && attempt_->mine && to_bytes(view) == to_bytes(*attempt_->mine);
  take(view);
  if (!is_mine) events_.decided(View(decided_));
  settle();
}

void QuorumKeeper::take(View view) {
  decided_ = std::move(view);
  promised_ = accepted_ = prepared_ = 0;
  first_is_used_ = false;
  accepted_view_.reset();
}

/// Ends an attempt whose instance is decided.
void QuorumKeeper::settle() {
  if (!attempt_ || attempt_->instance > decided_.epoch) return;
  if (!attempt_->mine) return end({});  // a read: a write upon this view finds out whether it is the newest one
  const bool is_mine = attempt_->instance == decided_.epoch && to_bytes(decided_) == to_bytes(*attempt_->mine);
  end(is_mine ? base::Status() : base::error(MV_ESTATE, "another list of members was decided meanwhile"));
}

// ---- messages

QuorumKeeper::Vote QuorumKeeper::answer(base::Peer from, const Vote& vote) {
  Vote answer{VoteWord::Refuse, vote.epoch, vote.ballot, promised_, std::nullopt, std::nullopt};
  if (vote.epoch < instance()) {
    answer.word = VoteWord::Decided;
    answer.view = decided_;
    return answer;
  }
  const bool is_prepare = vote.word == VoteWord::Prepare;
  if (is_prepare && from != decided_.master && from != self_ && events_.hears_master()) {
    answer.accepted = 0;
    return answer;
  }
  if (vote.ballot < promised_) return answer;
  promised_ = vote.ballot;
  if (is_prepare) {
    answer.word = VoteWord::Promise;
    answer.accepted = accepted_;
    answer.view = accepted_view_;
  } else {
    accepted_ = vote.ballot;
    accepted_view_ = vote.view;
    answer.word = VoteWord::Accepted;
  }
  return answer;
}

void QuorumKeeper::on_vote(base::Peer from, const Vote& vote) {
  if (vote.word == VoteWord::Decided) {
    if (vote.view) has_decided(*vote.view);
    return;
  }
  if (vote.word == VoteWord::Prepare || vote.word == VoteWord::Accept) {
    if (vote.base) has_decided(*vote.base);
    if (vote.epoch > instance() || (vote.word == VoteWord::Accept && !vote.view)) return;
    return events_.send(from, answer(from, vote));
  }
  if (!attempt_ || vote.epoch != instance() || vote.ballot != attempt_->ballot) return;
  Attempt& attempt = *attempt_;
  switch (vote.word) {
    case VoteWord::Refuse:
      attempt.highest = std::max(attempt.highest, vote.accepted);
      return;
    case VoteWord::Promise:
      if (attempt.proposed) return;
      attempt.agreed.insert(from);
      if (vote.accepted > attempt.best && vote.view) {
        attempt.best = vote.accepted;
        attempt.found = vote.view;
      }
      if (!is_quorum(decided_, attempt.agreed)) return;
      if (!attempt.found && !attempt.mine) {
        prepared_ = attempt.ballot;
        return end({});
      }
      attempt.proposed = attempt.found ? attempt.found : attempt.mine;
      return propose();
    case VoteWord::Accepted:
      if (!attempt.proposed) return;
      attempt.agreed.insert(from);
      if (is_quorum(decided_, attempt.agreed)) has_decided(View(*attempt.proposed));
      return;
    default:
      return;
  }
}

void QuorumKeeper::tick() {
  if (!attempt_ || clock_.now() < attempt_->again) return;
  if (clock_.now() >= attempt_->until) return end(base::error(MV_EUNREACHABLE, "no majority of the processes that decide about the members answers"));
  attempt_->pause = std::min(2 * attempt_->pause, kAskSeldom);
  if (attempt_->highest > attempt_->ballot) return prepare();
  attempt_->again = clock_.now() + attempt_->pause;
  const VoteWord word = attempt_->proposed ? VoteWord::Accept : VoteWord::Prepare;
  ask({word, instance(), attempt_->ballot, 0, attempt_->proposed, decided_});
}

}  // namespace mv::cluster
