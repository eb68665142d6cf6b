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

/// A call in progress: the flush, then the request to server 0, then, for a save, polling until it is complete.
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
  /// kFlushing: the flush. kAsked: server 0 has a request of this call. kAskedBack: the deadline passed, and server 0 is
  /// asked which workers are missing. kWaiting: between two polls of a save.
  enum class Stage : uint8_t { kFlushing, kAsked, kAskedBack, kWaiting, kOver };
  Stage stage = Stage::kFlushing;
  bool is_asked() const { return stage == Stage::kAsked || stage == Stage::kAskedBack; }
  bool over() const { return stage == Stage::kOver; }
  uint64_t save = 0;  ///< server 0's number of the save, once it continues in the background
  std::string path;
  base::Nanos poll_at = base::kNever, poll_wait = kFirstPoll;

 private:
  Client& owner_;
};

void Client::begin(Request request) {
  const auto call = std::make_shared<Call>(*this, std::move(request), false);
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
  auto& fbb = builder_.fbb();
  const auto path = fbb.CreateString(call->request.path);
  if (call->request.loads) {
    rpc_.call(server(), {builder_.finish(wire::Body::Load, wire::CreateLoad(fbb, path)), call, true, 0, nullptr});
    return;
  }
  const auto save = wire::CreateSave(fbb, path, call->request.keep, call->alone);
  rpc_.call(server(), {builder_.finish(wire::Body::Save, save, clocks.value()), call, true, 0, nullptr});
}

void Client::ask_whether_saved(const CallRef& call) {
  call->poll_at = base::kNever;
  call->stage = Call::Stage::kAsked;
  rpc_.call(server(), {builder_.finish(wire::Body::Saved, wire::CreateSaved(builder_.fbb(), call->save)), call, true, 0,
                       nullptr});
}

void Client::heard(const CallRef& call, const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) {
  if (call->over()) return;
  const bool unsent = std::exchange(call->stage, Call::Stage::kWaiting) == Call::Stage::kAskedBack && status.code() == MV_ECANCELED;
  if (unsent)
    return end(call,
               base::error(MV_ETIMEOUT, "{}: {} has not answered earlier calls", call->what(), view_->name(server())));
  if (!status.ok()) return end(call, status);
  if (const auto* saving = answer != nullptr ? answer->body_as_Saving() : nullptr) {
    const bool first = call->save == 0;
    call->save = saving->save();
    if (saving->path() != nullptr) call->path = saving->path()->str();
    call->poll_at = clock_.now() + call->poll_wait;
    call->poll_wait = std::min(call->poll_wait * 2, kLongestPoll);
    if (first && call->request.saving) call->request.saving();
    return;
  }
  if (answer != nullptr && answer->body_as_Loaded() != nullptr) {
    const auto clocks = read_clocks(payload);
    if (!clocks) return end(call, base::error(MV_EPROTOCOL, "{}: {} sent a damaged list of clocks", call->what(), view_->name(server())));
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

// ---- giving up

void Client::withdraw(const CallRef& call, mv_status code) {
  const bool asked = call->is_asked();
  const base::Status status =
      call->save != 0 ? base::error(code, "checkpoint {}: waiting was cancelled; saving continues", call->path)
      : !asked        ? base::error(code, "{}: cancelled; nothing was done", call->what())
      : call->request.loads
          ? base::error(code, "{}: cancelled; if all workers had already requested it, it continues", call->what())
          : base::error(code, "{}: cancelled", call->what());
  end(call, status);  // first, so that the answer to the cancel below is ignored
  if (!asked) return;
  rpc_.cancel(server(), call.get());
  rpc_.abandon(server(), call.get(), status, rpc::Client::IfUnseen::kVoid);
}

/// Later changes of this worker must not get into a save that it has given up, however late its request or its Cancel
/// reaches server 0.
void Client::expire(const CallRef& call) {
  if (call->save != 0)
    return end(call, base::error(MV_ETIMEOUT, "checkpoint {}: is still being written; saving continues", call->path));
  if (call->stage == Call::Stage::kFlushing)
    return end(call, base::error(MV_ETIMEOUT, "{}: this worker's own adds are not applied yet", call->what()));
  if (std::exchange(call->stage, Call::Stage::kAskedBack) != Call::Stage::kAskedBack) {
    call->until = clock_.now() + kLastAnswer;
    return rpc_.cancel(server(), call.get());
  }
  const base::Status status = base::error(MV_ETIMEOUT, "{}: no answer from {}", call->what(), view_->name(server()));
  end(call, status);
  rpc_.abandon(server(), call.get(), status, rpc::Client::IfUnseen::kVoid);
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
    if (call->save == 0 && !call->alone) end(call, base::error(MV_ESTATE, "{}: this worker is leaving the cluster", call->what()));
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
    if (!call->over() && now >= call->poll_at) ask_whether_saved(call);
  }
}

}  // namespace mv::checkpoint
