#include "engine/checkpoint/client.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/checkpoint/clocks.hpp"

namespace mv::checkpoint {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kFirstPoll = 2ms;
constexpr base::Nanos kLongestPoll = 100ms;
/// How long a call whose deadline passed waits for the names of the missing workers.
constexpr base::Nanos kLastAnswer = 1s;

}  // namespace

/// A call in progress: the flush, then the request to the coordinator, then, for a save, polling until it is complete.
class Client::Call final : public rpc::Pending, public base::Work, public std::enable_shared_from_this<Call> {
 public:
  Call(Client& owner, Request request, bool alone)
      : request(std::move(request)), alone(alone), until(this->request.operation != nullptr ? this->request.operation->deadline() : base::kNever), owner_(owner) {}
  void withdraw(mv_status code) override { owner_.withdraw(shared_from_this(), code); }
  base::SinkRef place(const wire::Message&, size_t bytes) override {
    const base::Pool::Block block = owner_.pool_.take(bytes);
    return base::Sink::into(block.bytes, block.memory);
  }
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) override {
    owner_.heard(shared_from_this(), status, answer, payload);
  }
  const char* what() const { return request.loads ? "loading a checkpoint" : "saving a checkpoint"; }

  Request request;
  const bool alone;  ///< the other workers do not take part
  base::Nanos until;
  base::Status flush_error;
  /// kFlushing: the flush. kAsked: the coordinator has a request of this call. kAskedBack: the deadline passed, and the coordinator is
  /// asked which workers are missing. kWaiting: between two polls of a save. kOrphaned: the coordinator is lost, and there is no other one yet.
  enum class Stage : uint8_t { kFlushing, kAsked, kAskedBack, kWaiting, kOrphaned, kOver };
  Stage stage = Stage::kFlushing;
  bool is_asked() const { return stage == Stage::kAsked || stage == Stage::kAskedBack; }
  bool over() const { return stage == Stage::kOver; }
  uint64_t number = 0;                     ///< see wire::Save.call
  bool again = false;                      ///< another coordinator was asked before
  base::Peer coordinator = base::kNobody;  ///< whom this call has asked last
  base::Status orphaned;                   ///< why there is no coordinator
  uint64_t save = 0;                       ///< the coordinator's number of the save, once it continues in the background
  bool goes_on = false;                    ///< it does, or did at the coordinator before; training may continue
  std::string path;                        ///< then: of the checkpoint
  uint64_t checkpoint = 0;                 ///< then: its number
  base::Nanos poll_at = base::kNever, poll_wait = kFirstPoll;

 private:
  Client& owner_;
};

base::Peer Client::coordinator() const {
  const cluster::Member& first = *view_->servers().front();
  const base::Peer by = view_->serving(first);
  return by != base::kNobody ? by : first.peer;  // a request to the lost one fails with the reason
}

void Client::start(const cluster::View& view) {
  view_ = &view;
  coordinator_ = coordinator();
}

void Client::begin(Request request) {
  const auto call = std::make_shared<Call>(*this, std::move(request), false);
  call->number = ++begun_;
  calls_.push_back(call);
  call->request.operation->begin(call);
  tables_.changes().flush([this, call](const base::Status& status) {
    if (call->over()) return;
    call->flush_error = status;
    ask(call);
  });
}

void Client::ask(const CallRef& call) {
  const auto clocks = call->request.loads ? base::PayloadRef() : write_clocks(tables_.catalogue().clocks());
  if (!clocks.ok()) return end(call, base::error(clocks.status().code(), "{}: {}; nothing was saved", call->what(), clocks.status().text()));
  call->stage = Call::Stage::kAsked;
  call->coordinator = coordinator();
  auto& fbb = builder_.fbb();
  const auto path = fbb.CreateString(call->request.path);
  if (call->request.loads) {
    rpc_.call(call->coordinator, {builder_.finish(wire::Body::Load, wire::CreateLoad(fbb, path, call->number, call->again)), call, true, 0, nullptr});
    return;
  }
  const auto going_on = call->goes_on ? fbb.CreateString(call->path) : 0;
  const auto save = wire::CreateSave(fbb, path, call->request.keep, call->alone, call->number, call->again, going_on, call->checkpoint);
  rpc_.call(call->coordinator, {builder_.finish(wire::Body::Save, save, clocks.value()), call, true, 0, nullptr});
}

void Client::ask_whether_saved(const CallRef& call) {
  call->poll_at = base::kNever;
  call->stage = Call::Stage::kAsked;
  rpc_.call(call->coordinator, {builder_.finish(wire::Body::Saved, wire::CreateSaved(builder_.fbb(), call->save)), call, true, 0, nullptr});
}

void Client::heard(const CallRef& call, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
  if (call->over()) {
    if (const auto* saving = call->goes_on && answer != nullptr ? answer->body_as_Saving() : nullptr) {
      call->save = saving->save();
      stop_waiting(*call);
    }
    return;
  }
  const bool gave_up = std::exchange(call->stage, Call::Stage::kWaiting) == Call::Stage::kAskedBack;
  const bool unsent = gave_up && status.code() == MV_ECANCELED;
  if (unsent) return end(call, base::error(MV_ETIMEOUT, "{}: {} has not answered earlier calls", call->what(), view_->name(call->coordinator)));
  if (!status.ok() && may_ask_successor(*call, status)) {
    call->stage = Call::Stage::kOrphaned;
    call->orphaned = status;
    call->poll_at = clock_.now();  // there may be a successor already
    return;
  }
  const bool goes_on = status.ok() && answer != nullptr && answer->body_as_Saving() != nullptr;
  if (!goes_on && !gave_up && !call->alone && call->number > ended_) {
    ended_ = call->number;
    how_ = status.code();
  }
  if (!status.ok()) return end(call, status);
  if (const auto* saving = answer != nullptr ? answer->body_as_Saving() : nullptr) {
    const bool first = !std::exchange(call->goes_on, true);
    call->save = saving->save();
    call->checkpoint = saving->number();
    if (first && !call->alone) begun_ = std::max(begun_, call->number = std::max(call->number, saving->call()));  // the place of a lost worker has its calls
    if (saving->path() != nullptr) call->path = saving->path()->str();
    call->poll_at = clock_.now() + call->poll_wait;
    call->poll_wait = std::min(call->poll_wait * 2, kLongestPoll);
    if (first && call->request.saving) call->request.saving();
    return;
  }
  if (const auto* loaded = answer != nullptr ? answer->body_as_Loaded() : nullptr) {
    begun_ = std::max(begun_, call->number = std::max(call->number, loaded->call()));
    const auto clocks = read_clocks(payload);
    if (!clocks) return end(call, base::error(MV_EPROTOCOL, "{}: {} sent a damaged list of clocks", call->what(), view_->name(call->coordinator)));
    // All workers resume at the clocks of the checkpoint.
    for (const auto& [name, clock] : *clocks) tables_.catalogue().set_clock(name, clock);
  }
  end(call, call->flush_error);
}

void Client::end(const CallRef& call, const base::Status& status) {
  if (std::exchange(call->stage, Call::Stage::kOver) == Call::Stage::kOver) return;
  calls_.remove(call);
  if (call->alone && !status.ok()) base::log_warn("the periodic checkpoint was not saved: {}", status.text());
  if (call->request.operation != nullptr) call->request.operation->complete(status);
  if (calls_.empty() && finished_) std::exchange(finished_, nullptr)();
}

// ---- another coordinator

/// The loss of another process than the coordinator is an answer of the coordinator.
bool Client::may_ask_successor(const Call& call, const base::Status& status) const {
  return can_move() && status.code() == MV_EPEERLOST && rpc_.is_lost(call.coordinator);
}

void Client::servers_changed() {
  if (view_ == nullptr) return;
  const base::Peer by = view_->serving(*view_->servers().front());
  if (by != base::kNobody && rpc_.is_lost(by)) return;  // its successor has not been named yet
  if (by != base::kNobody && coordinator_ != by) {
    const auto calls = calls_;
    for (const CallRef& call : calls)  // saves that the lost one can't tell of any more
      if (call->stage == Call::Stage::kWaiting && call->save != 0) ask_whether_saved(call);
    coordinator_ = by;
    std::vector<uint64_t> open;
    for (const CallRef& call : calls_)
      if (!call->alone) open.push_back(call->number);
    rpc_.call(by, {builder_.finish(wire::Body::CallsEnded, wire::CreateCallsEndedDirect(builder_.fbb(), ended_, how_, &open)),
                   std::make_shared<rpc::Ignored>(), true, 0, nullptr});
  }
  const auto calls = calls_;
  for (const CallRef& call : calls) {
    if (call->stage != Call::Stage::kOrphaned) continue;
    call->again = true;
    if (by == base::kNobody) {
      end(call, call->orphaned);
      continue;
    }
    call->save = 0;
    call->poll_at = base::kNever;
    call->poll_wait = kFirstPoll;
    ask(call);
  }
}

void Client::master_lost(const base::Status& why) {
  no_master_ = why;
  const auto calls = calls_;
  for (const CallRef& call : calls)
    if (call->stage == Call::Stage::kOrphaned) end(call, base::error(MV_EPEERLOST, "{}, and {}", call->orphaned.text(), why.text()));
}

// ---- giving up

/// Tells the coordinator that this worker will not ask whether its save is complete.
void Client::stop_waiting(const Call& call) {
  if (call.save == 0 || rpc_.is_lost(call.coordinator)) return;
  rpc_.call(call.coordinator,
            {builder_.finish(wire::Body::Saved, wire::CreateSaved(builder_.fbb(), call.save, true)), std::make_shared<rpc::Ignored>(), true, 0, nullptr});
}

void Client::withdraw(const CallRef& call, mv_status code) {
  const bool asked = call->is_asked();
  stop_waiting(*call);
  const base::Status status =
      call->goes_on ? base::error(code, "checkpoint {}: waiting was cancelled; saving continues", call->path)
      : !asked        ? base::error(code, "{}: cancelled; nothing was done", call->what())
      : call->request.loads
          ? base::error(code, "{}: cancelled; if all workers had already requested it, it continues", call->what())
          : base::error(code, "{}: cancelled", call->what());
  end(call, status);  // first, so that the answer to the cancel below is ignored
  if (!asked) return;
  rpc_.cancel(call->coordinator, call.get());
  rpc_.abandon(call->coordinator, call.get(), status, rpc::Client::IfUnseen::kVoid);
}

/// Later changes of this worker must not get into a save that it has given up, however late its request or its Cancel
/// reaches server 0.
void Client::expire(const CallRef& call) {
  if (call->stage == Call::Stage::kOrphaned) return end(call, base::error(MV_ETIMEOUT, "{}: {}", call->what(), call->orphaned.text()));
  if (call->goes_on) {
    stop_waiting(*call);
    return end(call, base::error(MV_ETIMEOUT, "checkpoint {}: is still being written; saving continues", call->path));
  }
  if (call->stage == Call::Stage::kFlushing)
    return end(call, base::error(MV_ETIMEOUT, "{}: this worker's own adds are not applied yet", call->what()));
  if (std::exchange(call->stage, Call::Stage::kAskedBack) != Call::Stage::kAskedBack) {
    call->until = clock_.now() + kLastAnswer;
    return rpc_.cancel(call->coordinator, call.get());
  }
  const base::Status status = base::error(MV_ETIMEOUT, "{}: no answer from {}", call->what(), view_->name(call->coordinator));
  end(call, status);
  rpc_.abandon(call->coordinator, call.get(), status, rpc::Client::IfUnseen::kVoid);
}

// ---- periodic saves

void Client::save_every(base::Nanos span, std::string directory, uint64_t keep) {
  every_ = span;
  directory_ = std::move(directory);
  keep_ = keep;
  next_by_clock_ = base::after(clock_.now(), span);
}

void Client::save_by_clock() {
  next_by_clock_ = base::after(clock_.now(), every_);
  Request request;
  request.path = directory_;
  request.keep = keep_;
  const auto call = std::make_shared<Call>(*this, std::move(request), true);
  calls_.push_back(call);
  ask(call);
}

void Client::finish(std::function<void()> finished) {
  next_by_clock_ = base::kNever;
  const auto calls = calls_;
  for (const CallRef& call : calls)
    if (!call->goes_on && !call->alone) end(call, base::error(MV_ESTATE, "{}: this worker is leaving the cluster", call->what()));
  if (calls_.empty()) return finished();
  finished_ = std::move(finished);
}

// ---- time

base::Nanos Client::next_deadline() const {
  base::Nanos next = next_by_clock_;
  for (const CallRef& call : calls_) next = std::min({next, call->poll_at, call->until});
  return next;
}

void Client::tick() {
  const base::Nanos now = clock_.now();
  if (now >= next_by_clock_) {
    const bool busy = std::any_of(calls_.begin(), calls_.end(), [](const CallRef& call) { return call->alone; });
    busy ? void(next_by_clock_ = base::after(now, every_)) : save_by_clock();
  }
  const auto calls = calls_;  // a copy, because both functions below may end calls
  for (const CallRef& call : calls) {
    if (!call->over() && now >= call->until) expire(call);
    if (call->over() || now < call->poll_at) continue;
    if (call->stage != Call::Stage::kOrphaned) {
      ask_whether_saved(call);
      continue;
    }
    call->poll_at = base::kNever;
    no_master_.ok() ? servers_changed() : master_lost(no_master_);
  }
}

}  // namespace mv::checkpoint
