#include "api/group/message_group.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "api/group/shared_group.hpp"

namespace mv::api {

// ---- opening, shrinking, growing, closing

struct MessageGroup::Opened {
  std::shared_ptr<Call> call;
  collective::GroupRef group;
  std::vector<int64_t> workers;  ///< by rank
  /// On the loop.
  void hear(Calls& calls, const base::Result<collective::GroupRef>& result) {
    if (result.ok()) {
      group = result.value();
      const auto all = calls.member().cluster().view().workers();
      const auto id_of = [&](uint32_t place) { return std::ranges::find(all, place, [](const cluster::Member* worker) { return worker->rank; }) - all.begin(); };
      for (const uint32_t place : group->members().places) workers.push_back(id_of(place));
    }
    call->complete(result.ok() ? base::Status() : result.status());
  }
};

base::Result<GroupRef> MessageGroup::finish_opening(Calls& calls, const std::shared_ptr<Opened>& opened, const CallOptions& options, transport::Task begin) {
  const Started started = calls.start(opened->call, blocking(options), std::move(begin));
  if (!started.status.ok()) return started.status;
  try {
    return GroupRef(std::make_shared<MessageGroup>(calls, opened->group, std::move(opened->workers)));
  } catch (const std::bad_alloc&) {  // the group is open, and nothing else would close it
    abandon(calls, opened->group, base::Status(MV_ENOMEM, "out of memory"));
    throw;
  }
}

base::Result<GroupRef> MessageGroup::open(Calls& calls, std::vector<int64_t> workers, const CallOptions& options) {
  const runtime::Identity& self = calls.identity();
  if (self.worker_id < 0) return base::Status(MV_ESTATE, "only workers can open groups; this process is only a server");
  if (workers.empty()) {
    workers.resize(static_cast<size_t>(self.num_workers));
    std::iota(workers.begin(), workers.end(), int64_t{0});
  }
  std::sort(workers.begin(), workers.end());
  if (std::adjacent_find(workers.begin(), workers.end()) != workers.end()) return base::Status(MV_EINVAL, "a worker is listed twice");
  if (workers.front() < 0 || workers.back() >= self.num_worker_places)
    return base::error(MV_EINVAL, "{} is not a worker; the cluster has {} workers", workers.front() < 0 ? workers.front() : workers.back(), self.num_worker_places);
  if (!std::binary_search(workers.begin(), workers.end(), self.worker_id))
    return base::error(MV_EINVAL, "this process, worker {}, is not in the list of workers", self.worker_id);
  const auto opened = std::make_shared<Opened>();
  opened->call = calls.make_call(blocking(options), true);
  return finish_opening(calls, opened, options, [&calls, opened, workers] {
    const auto all = calls.member().cluster().view().workers();
    std::vector<base::Peer> peers;
    for (const int64_t id : workers) peers.push_back(all[static_cast<size_t>(id)]->peer);
    calls.member().groups().open(opened->call, std::move(peers), [&calls, opened](const base::Result<collective::GroupRef>& result) { opened->hear(calls, result); });
  });
}

base::Result<GroupRef> MessageGroup::shrink(const CallOptions& options) {
  const auto opened = std::make_shared<Opened>();
  opened->call = calls_.make_call(blocking(options), true);
  auto survivors = finish_opening(calls_, opened, options, [calls = &calls_, opened, group = group_] {
    calls->member().groups().shrink(opened->call, group, [calls, opened](const base::Result<collective::GroupRef>& result) { opened->hear(*calls, result); });
  });
  return SharedGroup::over(calls_, std::move(survivors), options);  // as all survivors do, whether they have this group in shared memory or not
}

base::Result<GroupRef> MessageGroup::join(Calls& calls, const std::string& name, const CallOptions& options) {
  if (calls.identity().worker_id < 0) return base::Status(MV_ESTATE, "only workers can join groups; this process is only a server");
  const auto opened = std::make_shared<Opened>();
  opened->call = calls.make_call(blocking(options), true);
  auto grown = finish_opening(calls, opened, options, [&calls, opened, name] {
    calls.member().groups().join(opened->call, name, [&calls, opened](const base::Result<collective::GroupRef>& result) { opened->hear(calls, result); });
  });
  return SharedGroup::over(calls, std::move(grown), options);
}

/// An operation in which all ranks learn what each of them wants: whether the group has to change.
base::Result<bool> MessageGroup::has_to_grow(Group& group, const Growth& growth, const CallOptions& options) {
  const std::string& name = growth.name;
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  int64_t asked = 0;
  calls_.on_loop([&] { asked = static_cast<int64_t>(calls_.member().groups().newcomers(*group_, name)); });
  const auto number = static_cast<int64_t>(hash >> 2);
  // Of the minimum over all ranks: newcomers that all know, the negative of the greatest size, the least and the greatest name.
  std::vector<int64_t> wants = {asked, -static_cast<int64_t>(growth.size), number, -number};
  collective::Operation operation;
  operation.kind = collective::Kind::kGrow;
  operation.reduction = math::Reduction::kMin;
  operation.out = {{reinterpret_cast<std::byte*>(wants.data()), wants.size(), MV_I64}};
  if (Started told = group.run(std::move(operation), options); !told.status.ok()) return told.status;
  if (wants[2] != -wants[3]) return base::error(MV_EDISAGREE, "the ranks grow the group by different names; this one by \"{}\"", name);
  return wants[0] > 0 || -wants[1] > static_cast<int64_t>(members_.size());
}

/// After the operation the ranks agree on the members like survivors that shrink the group. A rank whose operation has
/// failed because others have done this already, or because a rank is lost, does it too.
base::Result<GroupRef> MessageGroup::grow(Group& group, const Growth& growth, const CallOptions& options) {
  CallOptions rest = blocking(options);
  const base::Nanos until = calls_.deadline(rest, true);
  if (group.info().broken.ok()) {
    const auto has_to = has_to_grow(group, growth, rest);
    if (has_to.ok() && !has_to.value()) return GroupRef();
    if (!has_to.ok() && (has_to.status().code() != MV_EPEERLOST || group.info().broken.ok())) return has_to.status();
    rest.timeout = until == base::kNever ? base::kNever : std::max(base::Nanos{1}, until - calls_.loop().now());
  }
  const auto opened = std::make_shared<Opened>();
  opened->call = calls_.make_call(rest, true);
  auto grown = finish_opening(calls_, opened, rest, [calls = &calls_, opened, group = group_, growth] {
    calls->member().groups().grow(opened->call, group, {growth.name, growth.size},
                                  [calls, opened](const base::Result<collective::GroupRef>& result) { opened->hear(*calls, result); });
  });
  return SharedGroup::over(calls_, std::move(grown), rest);
}

base::Status MessageGroup::close() {
  calls_.on_loop([&] { calls_.member().groups().close(group_); });
  return {};
}

base::Status MessageGroup::abort(const std::string& reason) {
  calls_.on_loop([&] { calls_.member().groups().abort(group_, reason); });
  return {};
}

/// Posts the close, because messages on the loop may still refer to the group.
MessageGroup::~MessageGroup() {
  if (group_ != nullptr) leave();
}

void MessageGroup::leave() noexcept {
  calls_.loop().post_or_break([calls = &calls_, group = group_] { calls->member().groups().close(group); });
}

void MessageGroup::abandon(const base::Status& why) noexcept { abandon(calls_, std::move(group_), why); }

void MessageGroup::abandon(Calls& calls, collective::GroupRef group, const base::Status& why) noexcept {
  try {
    calls.loop().post_or_break([calls = &calls, group = std::move(group), why] { calls->member().groups().abandon(group, why); });
  } catch (const std::bad_alloc& none) {  // thrown by the copy of the text
    calls.loop().break_down(&none);
  }
}

void MessageGroup::give_up(const base::Status& why) noexcept {
  try {
    calls_.loop().post_or_break([group = group_, why] { group->break_group(why, true); });
  } catch (const std::bad_alloc& none) {
    calls_.loop().break_down(&none);
  }
}

GroupInfo MessageGroup::info() {
  GroupInfo info;
  const collective::Setting& setting = group_->setting();
  info.rank = setting.rank;
  info.size = setting.size;
  info.hosts = static_cast<int64_t>(std::set<int32_t>(setting.layout.hosts.begin(), setting.layout.hosts.end()).size());
  info.transport = "messages";
  info.collective = collective_;
  info.collective_why = collective_why_;
  info.elder = group_->members().elder();
  info.generation = group_->members().generation;
  info.tuning = group_->tuning();
  calls_.read_on_loop([&] {
    const collective::GroupCounters state = group_->counters();
    info.sent = state.sent - before_.sent;
    info.received = state.received - before_.received;
    info.operations = state.operations - before_.operations;
    info.broken = state.broken;
  });
  return info;
}

// ---- operations

Started MessageGroup::run(collective::Operation&& operation, const CallOptions& options) {
  const collective::Setting& setting = group_->setting();
  if (base::Status wrong = check_operation(operation, setting.rank, setting.size); !wrong.ok()) return {std::move(wrong), nullptr};
  const auto call = calls_.make_call(options, true);
  return calls_.start(call, options, [group = group_, operation = std::move(operation), call]() mutable {
    group->begin(std::move(operation), call);
  });
}

base::Result<collective::Shape> MessageGroup::drain(const CallOptions& options) {
  const auto call = calls_.make_call(blocking(options), true);
  const auto shape = std::make_shared<collective::Shape>();
  const Started started = calls_.start(call, blocking(options), [group = group_, call, shape] {
    group->drain(call, [call, shape](base::Result<collective::Shape> drained) {
      if (drained.ok()) *shape = std::move(drained).value();
      call->complete(drained.ok() ? base::Status() : drained.status());
    });
  });
  if (!started.status.ok()) return started.status;
  return *shape;
}

/// A custom reduction: the loop exchanges the values, the caller's thread combines them.
class MessageGroup::ManualReduction final : public CustomReduction {
 public:
  ManualReduction(Calls& calls, collective::GroupRef group, std::shared_ptr<Call> call) : calls_(calls), group_(std::move(group)), call_(std::move(call)) {}
  ~ManualReduction() override { static_cast<void>(end()); }

  void begin(collective::Operation operation) {
    operation.contributors = &state_->contributors;
    calls_.loop().post([group = group_, call = call_, state = state_, operation = std::move(operation)]() mutable {
      group->begin(std::move(operation), call, [state](const std::vector<collective::Array>& theirs) {
        state->theirs = theirs;
        state->handed.store(true, std::memory_order_release);
      });
    });
  }
  base::Result<const std::vector<collective::Array>*> next() override {
    const auto due = [&] { return state_->handed.load(std::memory_order_acquire) || call_->done(); };
    if (base::Status waited = calls_.wait_until(due, base::kNever); !waited.ok()) return waited;
    if (!call_->done()) return &state_->theirs;
    if (!call_->status().ok()) return call_->status();
    return static_cast<const std::vector<collective::Array>*>(nullptr);
  }
  base::Status done(const base::Status& status) override {
    if (!state_->handed.exchange(false)) return base::Status(MV_ESTATE, "no values are waiting to be reduced");
    calls_.loop().post([group = group_, call = call_, status] { group->resume(*call, status); });
    return {};
  }
  base::Result<uint64_t> end() override {
    if (!call_->done()) static_cast<void>(calls_.cancel(call_));
    if (!call_->status().ok()) return call_->status();
    return state_->contributors;
  }

 private:
  struct State {
    std::vector<collective::Array> theirs;
    std::atomic<bool> handed{false};
    uint64_t contributors = 0;
  };
  Calls& calls_;
  const collective::GroupRef group_;
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

base::Result<CustomReductionRef> MessageGroup::custom(collective::Operation operation, const CallOptions& options) {
  const collective::Setting& setting = group_->setting();
  if (base::Status wrong = check_operation(operation, setting.rank, setting.size); !wrong.ok()) return wrong;
  const auto reduction = std::make_shared<ManualReduction>(calls_, group_, calls_.make_call(blocking(options), true));
  reduction->begin(std::move(operation));
  return CustomReductionRef(reduction);
}

}  // namespace mv::api
