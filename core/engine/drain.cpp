#include "engine/drain.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace mv::engine {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kLookEvery = 20ms;  ///< for the end of a checkpoint, or after a refusal
constexpr base::Nanos kAskAgain = 200ms;
constexpr base::Nanos kLookOften = 1ms;   ///< for the last acknowledgement of the copies, while nobody serves the tables
constexpr base::Nanos kPatience = 5s;     ///< with a checkpoint under way
/// With members that do not close their connections, beyond the heartbeat's time-out: by then, one that the master does not reach is lost.
constexpr base::Nanos kGoodbyes = 2s;
}  // namespace

/// The master's answer to Drain or HandOver.
class Drain::Answered final : public rpc::Pending {
 public:
  Answered(Drain& drain, void (Drain::*next)(const base::Status&)) : drain_(drain), number_(++drain.requests_), next_(next) {}
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    if (number_ == drain_.requests_) (drain_.*next_)(status);  // else it was repeated since
  }

 private:
  Drain& drain_;
  const uint64_t number_;
  void (Drain::*const next_)(const base::Status&);
};

base::Status Drain::why_never() const {
  const cluster::Self& self = cluster_.self();
  if ((self.role & MV_ROLE_SERVER) == 0) return base::error(MV_EINVAL, "only a server can hand its tables over");
  if (cluster_.is_joining()) return base::error(MV_ESTATE, "this server has not joined the cluster yet");
  // A worker finishes before its process drains. Without another server, it would finish for nothing.
  const cluster::Member* const member = cluster_.view().find(self.peer);
  const auto servers = cluster_.view().staying_servers();
  const bool has_heir = std::ranges::any_of(servers, [&](const cluster::Member* server) { return server->peer != self.peer; });
  if (member != nullptr && member->is_worker() && member->state == cluster::MemberState::kHere && !has_heir)
    return base::error(MV_EUNREACHABLE, "there is no other server that stays and could take over its tables");
  return {};
}

void Drain::begin(Done done) {
  if (stage_ == Stage::kOver || stage_ == Stage::kFailed) return done(failure_);
  if (stage_ == Stage::kNot) {
    if (const base::Status wrong = why_never(); !wrong.ok()) return done(wrong);
    if (const cluster::Member& member = *cluster_.view().find(cluster_.self().peer); member.is_worker() && member.state == cluster::MemberState::kHere)
      return done(base::error(MV_ESTATE, "a worker finishes before its process hands its tables over"));
    if (cluster_.all_workers_gone()) return done({});  // nobody needs the tables
    done_.push_back(std::move(done));
    leaves_ = true;
    stage_ = Stage::kAsking;
    base::log_info("this server is draining: its tables move to other servers");
    return cluster_.drain(std::make_shared<Answered>(*this, &Drain::asked));
  }
  done_.push_back(std::move(done));  // while parts are given back: see given_back()
}

void Drain::ask_new_master() {
  asks_again_ = false;
  if (stage_ == Stage::kAsking) cluster_.drain(std::make_shared<Answered>(*this, &Drain::asked));
  if (stage_ == Stage::kHandingOver) cluster_.hand_over(given_, std::make_shared<Answered>(*this, &Drain::answered));
}

void Drain::asked(const base::Status& status) {
  if (stage_ != Stage::kAsking || repeat_later(status)) return;
  if (!status.ok()) return end(status);
  stage_ = Stage::kMoving;
  advance();
}

void Drain::advance() {
  if (is_accepted_ && !parts_.leads_any_of(given_)) given_back();
  if (stage_ == Stage::kMoving || stage_ == Stage::kNot) seal_if_copied();
  if (stage_ == Stage::kSealing) hand_over_if_sealed();
}

void Drain::seal_if_copied() {
  const bool is_completing = parts_.complete_copies(leaves_);
  given_ = leaves_ ? parts_.led() : parts_.moving();
  const bool copied = leaves_ ? parts_.can_hand_over(given_) : !given_.empty();
  hold_checkpoints(copied);
  if (!copied) {
    busy_until_ = base::kNever;
    if (is_completing) next_look_ = clock_.now() + kLookEvery;
    return;
  }
  const base::Nanos now = clock_.now();
  if (busy_until_ == base::kNever) busy_until_ = now + kPatience;
  if ((participant_.is_busy() || coordinator_.is_busy()) && now < busy_until_) {
    next_look_ = now + kLookEvery;
    return;
  }
  stage_ = Stage::kSealing;
  parts_.seal(given_);
}

void Drain::hand_over_if_sealed() {
  if (!parts_.can_hand_over(given_)) return go_on_serving();  // a copy is lost
  if (!parts_.is_seal_acknowledged(given_)) {
    next_look_ = clock_.now() + kLookOften;
    return;
  }
  stage_ = Stage::kHandingOver;
  cluster_.hand_over(given_, std::make_shared<Answered>(*this, &Drain::answered));
}

void Drain::go_on_serving() {
  stage_ = Stage::kMoving;
  next_look_ = clock_.now() + kLookEvery;
  parts_.unseal(given_);
  leaves_ ? hold_checkpoints(false) : given_back();
}

/// What was given back is over, and a drain that was asked for meanwhile can begin.
void Drain::given_back() {
  stage_ = Stage::kNot;
  is_accepted_ = false;
  hold_checkpoints(false);
  for (Done& done : std::exchange(done_, {})) begin(std::move(done));
}

/// Else saves that follow each other closely would leave no moment to seal the parts in.
void Drain::hold_checkpoints(bool hold) {
  if (parts_.is_leaving() == hold) return;
  parts_.set_leaving(hold);
  if (!hold) coordinator_.servers_changed();
}

/// The master is lost, or does not know yet that it is the master.
bool Drain::repeat_later(const base::Status& status) {
  if (status.code() != MV_EPEERLOST || (cluster_.is_kept() ? !cluster_.why_cut_off().ok() : cluster_.has_lost_master())) return false;
  next_look_ = clock_.now() + kAskAgain;
  asks_again_ = true;
  return true;
}

void Drain::answered(const base::Status& status) {
  if (stage_ != Stage::kHandingOver || repeat_later(status)) return;
  if (!leaves_ && status.ok()) {  // until the view has come, this node would give the parts away again, and be refused
    is_accepted_ = true;
    return advance();
  }
  if (!leaves_ && !parts_.leads_any_of(given_)) return given_back();
  if (status.ok()) return handed_over();
  if (status.code() == MV_ESTATE) return go_on_serving();  // the master has refused it
  failure_ = base::error(status.code(), "{}; it may have given the tables of this server to others before, so this server no longer serves them", status.text());
  end(failure_);
}

void Drain::master_lost(const base::Status& why) {
  if (stage_ == Stage::kHandingOver && cluster_.is_kept()) return answered(why);
  if (stage_ == Stage::kSealing) parts_.unseal(given_);
  if (stage_ == Stage::kSealing && !leaves_) return given_back();
  if (stage_ == Stage::kAsking || stage_ == Stage::kMoving || stage_ == Stage::kSealing) end(why);
}

void Drain::handed_over() {
  if (stage_ != Stage::kHandingOver || !leaves_) return;
  stage_ = Stage::kTelling;
  base::log_info("the tables of this server are handed over");
  next_look_ = clock_.now() + cluster_.self().heartbeat_timeout + kGoodbyes;
  cluster_.await_goodbyes([this] { end({}); });
}

void Drain::end(const base::Status& status) {
  if (stage_ == Stage::kOver) return;
  stage_ = status.ok() ? Stage::kOver : failure_.ok() ? Stage::kNot : Stage::kFailed;
  next_look_ = base::kNever;
  leaves_ = leaves_ && stage_ != Stage::kNot;
  if (stage_ == Stage::kNot) hold_checkpoints(false);
  for (const Done& done : std::exchange(done_, {})) done(status);
}

std::string Drain::waits_for() const {
  if (!leaves_) return "";
  switch (stage_) {
    case Stage::kNot:
    case Stage::kOver:
    case Stage::kFailed:
      return "";
    case Stage::kMoving:
      return parts_.can_hand_over(parts_.led()) ? "the end of a checkpoint" : "the copies of its tables";
    case Stage::kSealing:
      return "the copies of its tables";
    case Stage::kTelling:
      return "the other processes to hear of it";
    default:
      return "the master";
  }
}

void Drain::tick() {
  if (clock_.now() < next_look_) return;
  next_look_ = base::kNever;
  if (stage_ == Stage::kTelling) return end({});
  if (std::exchange(asks_again_, false)) ask_new_master();
  advance();
}

}  // namespace mv::engine
