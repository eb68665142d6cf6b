#include "api/node/member_node.hpp"

#include "api/group/shared_group.hpp"

namespace mv::api {

runtime::Runtime::Events MemberNode::events() {
  runtime::Runtime::Events events;
  events.joined = [this] { save_by_clock(); };
  events.lost_shared_memory = [this](base::Peer peer) { tables_.drop_mapped(peer); };
  events.membership = [this](const cluster::MembershipEvent& event) {
    membership_.push(event);
    if (takes_events_) show_due();
    calls_.wake();
  };
  events.broken = [this](const base::Status& why) {
    defect_.store(&why, std::memory_order_release);
    calls_.tell_pollers();
  };
  return events;
}

void MemberNode::take_no_commands() {
  if (defect() == nullptr && !std::exchange(leaving_, true)) set_controller(false, {});
}

base::Status MemberNode::shutdown() {
  take_no_commands();
  return runtime_.shutdown();
}

void MemberNode::abort(const std::string& why) {
  take_no_commands();
  runtime_.abort(why);
}

void MemberNode::callbacks_due(bool any) {
  callbacks_due_ = any;
  show_due();
}

/// The descriptor is readable, and polls end, while something waits for the program.
void MemberNode::show_due() { calls_.callbacks_due(callbacks_due_ || membership_event_due()); }

base::Result<Told> MemberNode::next_membership_event(base::Nanos timeout) {
  takes_events_ = true;
  std::optional<Told> told = membership_.pop();
  if (!told && timeout > base::Nanos(0)) {
    const base::Status waited = calls_.wait_until([this] { return membership_.has_any(); }, timeout);
    if (!waited.ok() && waited.code() != MV_ETIMEOUT) return waited;
    told = membership_.pop();
  }
  show_due();
  if (!told) return base::Status(MV_ETIMEOUT, "the membership has not changed");
  return std::move(*told);
}

void MemberNode::abandon_after_fork() noexcept {
  runtime_.abandon_after_fork();
  calls_.abandon_after_fork();
}

Started MemberNode::barrier(const CallOptions& options, Flush flush) {
  if (identity().worker_id < 0) return {base::Status(MV_ESTATE, "barrier: this process is only a server"), nullptr};
  const auto begin = [this, flush](const CallRef& call) { runtime_.member().barrier(call, flush == Flush::kChanges); };
  if (options.mode != Mode::kBlocking) {
    const CallRef call = calls_.make_call(options, true);
    return calls_.start(call, options, [begin, call] { begin(call); });
  }
  CallRef call;
  {
    const std::scoped_lock lock(mutex_);
    call = std::exchange(open_barrier_, nullptr);
  }
  const bool goes_on = call != nullptr;
  if (!goes_on) call = calls_.make_call(options, true);
  CallOptions kept = options;
  kept.keep_on_interrupt = true;
  Started met = goes_on ? calls_.wait_blocking(call, kept, {}) : calls_.start(call, kept, [begin, call] { begin(call); });
  if (met.status.code() == MV_EINTR && !options.keep_on_interrupt && met.call != nullptr) leave_barrier_open(std::move(met.call));
  return met;
}

void MemberNode::leave_barrier_open(CallRef barrier) {
  const std::scoped_lock lock(mutex_);
  open_barrier_ = std::move(barrier);
}

base::Result<GroupRef> MemberNode::open_group(std::vector<int64_t> workers, const CallOptions& options) {
  return SharedGroup::over(calls_, MessageGroup::open(calls_, std::move(workers), options), options);
}

base::Result<GroupRef> MemberNode::join_group(const std::string& name, const CallOptions& options) { return MessageGroup::join(calls_, name, options); }

std::vector<int64_t> MemberNode::workers_here() {
  std::vector<int64_t> ids;
  runtime_.read_on_loop([&] {
    const cluster::View& view = runtime_.member().cluster().view();
    const cluster::Member* self = view.find(runtime_.member().self());
    const auto workers = view.workers();
    for (size_t id = 0; id < workers.size(); ++id)
      if (workers[id]->host == self->host) ids.push_back(static_cast<int64_t>(id));
  });
  return ids;
}

std::vector<int64_t> MemberNode::active_workers() {
  std::vector<int64_t> ids;
  runtime_.read_on_loop([&] {
    const auto workers = runtime_.member().cluster().view().workers();
    for (size_t id = 0; id < workers.size(); ++id)
      if (workers[id]->state == cluster::MemberState::kHere) ids.push_back(static_cast<int64_t>(id));
  });
  return ids;
}

}  // namespace mv::api
