#include "api/group/shared_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "api/group/device_group.hpp"
#include "api/group/handover.hpp"
#include "api/group/kept_tuning.hpp"
#include "base/log.hpp"
#include "base/spare_descriptors.hpp"
#include "runtime/random.hpp"

namespace mv::api {

namespace {

using collective::Kind;
using collective::Operation;

/// What each rank sends to the others at the opening: whether and where it shares memory. The memory holds `proof` too.
/// The lowest rank's tuning counts for all.
struct BootstrapRecord {
  uint64_t willing = 0, proof = 0, file = 0;
  int64_t process = 0, descriptor = -1;
  JobPlace job;
  uint64_t may_use_devices = 0;
  intranode::Tuning tuning;
};
static_assert(std::is_trivially_copyable_v<BootstrapRecord>);

Operation in_bytes(Kind kind, void* values, uint64_t count, mv_dtype dtype) {
  Operation operation;
  operation.kind = kind;
  operation.out.push_back({static_cast<std::byte*>(values), count, dtype});
  return operation;
}

/// The shared memory of all ranks, by rank; null where this process cannot map it.
std::vector<intranode::Memory> see(const std::vector<BootstrapRecord>& records, size_t own, const intranode::Memory& mine) {
  std::vector<intranode::Memory> memory(records.size());
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const BootstrapRecord& record = records[rank];
    if (rank == own) {
      memory[rank] = mine;
    } else if (record.willing != 0) {
      auto seen = intranode::open_of(static_cast<int32_t>(record.process), static_cast<int>(record.descriptor), record.file, intranode::SharedRegion::bytes(records.size()));
      if (!seen.ok()) base::log_debug("rank {} of a group shares no memory: {}", rank, seen.status().text());
      const bool proven = seen.ok() && intranode::SharedRegion(seen.value(), records.size()).words().proof.load() == record.proof;
      if (proven) memory[rank] = std::move(seen).value();
    }
  }
  return memory;
}

/// Whether all ranks may have arrays on devices, and the lowest rank's setting allows to reduce them there.
bool all_may_use_devices(const std::vector<BootstrapRecord>& records, MessageGroup& messages, const std::string& collective_why) {
  const Collective setting = records.front().job.collective;
  if (setting != Collective::kAuto && setting != Collective::kNccl) return false;
  const auto lacks = std::ranges::find(records, uint64_t{0}, &BootstrapRecord::may_use_devices);
  if (lacks == records.end()) return true;
  if (setting == Collective::kAuto) return false;
  const std::string why = fmt::format("rank {} has no plug-in for devices, or its collective is own or mpi", lacks - records.begin());
  base::log_warn("collective=nccl, but {}", why);
  messages.set_handover("own", fmt::format("{}, but {}", collective_why, why));
  return false;
}

}  // namespace

// ------------------------------------------------------------ opening

/// A rank that is lost or aborts while this one is here had the group open. Others may have it too, and shrink it: so this
/// one opens it as well, broken, or it would not be among their survivors.
base::Result<GroupRef> SharedGroup::over(Calls& calls, base::Result<GroupRef> opened, const CallOptions& options) {
  if (!opened.ok()) return opened;
  const auto messages = std::static_pointer_cast<MessageGroup>(opened.value());
  try {
    auto group = over(calls, messages, options);
    if (group.ok()) return group;
    if (group.status().code() == MV_EPEERLOST) {
      messages->count_from_here();
      return opened;
    }
    messages->abandon(group.status());
    return group;
  } catch (const std::exception&) {
    messages->abandon(base::Status(MV_ENOMEM, "out of memory"));  // the others are waiting for this rank
    throw;
  }
}

base::Result<GroupRef> SharedGroup::over(Calls& calls, const std::shared_ptr<MessageGroup>& messages, const CallOptions& options) {
  const size_t ranks = messages->members().size();
  const auto rank = static_cast<size_t>(messages->engine()->setting().rank);
  if (ranks < 2) return GroupRef(messages);
  if (ranks > intranode::kMostRanks) {
    const auto may = may_hand_over(calls, *messages, blocking(options));
    if (!may.ok()) return may.status();
    messages->count_from_here();
    messages->set_handover("own", "auto: MPI is not in use, as it is with transport=mpi");
    if (!may.value()) return GroupRef(messages);
  }
  intranode::Memory mine;
  if (ranks <= intranode::kMostRanks && calls.settings().transport != "tcp" && calls.settings().faults.empty()) {
    auto made = base::SharedMemory::make("polyverso-group", intranode::SharedRegion::bytes(ranks));
    if (made.ok() && static_cast<rlim_t>(made.value()->fd()) < base::first_spare_descriptor()) mine = std::move(made).value();
  }
  BootstrapRecord record{mine != nullptr, runtime::random_peer(), 0, getpid(), -1, job_place(calls), may_use_devices(calls) ? 1U : 0U, {}};
  if (rank == 0 && mine != nullptr) record.tuning = tuning_for(calls.settings().tuning, ranks);
  if (mine != nullptr) {
    record.descriptor = mine->fd();
    record.file = intranode::file_of(mine->fd());
    intranode::SharedRegion(mine, ranks).words().proof.store(record.proof);
  }
  std::vector<BootstrapRecord> records(ranks);
  Operation tell = in_bytes(Kind::kAllgather, records.data(), ranks * sizeof(BootstrapRecord), MV_RAW);
  tell.in.push_back(reinterpret_cast<const std::byte*>(&record));
  if (Started told = messages->run(std::move(tell), blocking(options)); !told.status.ok()) return told.status;
  const std::vector<intranode::Memory> memory = see(records, rank, mine);
  int64_t all_seen = std::count(memory.begin(), memory.end(), nullptr) == 0;
  Operation agree = in_bytes(Kind::kAllreduce, &all_seen, 1, MV_I64);
  agree.reduction = math::Reduction::kMin;
  if (Started agreed = messages->run(std::move(agree), blocking(options)); !agreed.status.ok()) return agreed.status;
  std::vector<JobPlace> places;
  for (const BootstrapRecord& each : records) places.push_back(each.job);
  const Verdict verdict = judge(places, messages->engine()->members().generation, all_seen != 0);
  messages->set_handover("own", verdict.why);
  if (!verdict.tries && places.front().collective == Collective::kMpi)
    base::log_warn("the all-reduces of a group are not handed over to MPI: {}", verdict.why);
  if (verdict.tries)
    if (base::Status handed = hand_over(calls, *messages, places, verdict, blocking(options)); !handed.ok()) return handed;
  messages->count_from_here();
  GroupRef group = messages;
  if (all_seen != 0 && !verdict.tries) group = std::make_shared<SharedGroup>(calls, messages, memory, records.front().tuning);
  if (!all_may_use_devices(records, *messages, verdict.why)) return group;
  return GroupRef(std::make_shared<DeviceGroup>(calls, std::move(group), messages));
}

SharedGroup::SharedGroup(Calls& calls, std::shared_ptr<MessageGroup> messages, const std::vector<intranode::Memory>& memory,
                         const intranode::Tuning& tuning)
    : calls_(calls), messages_(std::move(messages)),
      context_(std::make_shared<intranode::RankContext>(static_cast<size_t>(messages_->engine()->setting().rank), memory, messages_->engine()->members().names,
                                                          std::chrono::microseconds(calls.settings().spin_us), tuning)),
      queue_(std::make_shared<SharedQueue>(calls.loop(), context_, messages_->engine(),
                                           [this](const Operation& operation, base::Nanos deadline) { return by_messages(operation, deadline); },
                                           calls.runtime().callers_trace().on() ? &calls.runtime().callers_trace() : nullptr)) {
  calls_.runtime().when_broken(context_, [context = context_.get()](const base::Status& why) { context->give_up(why); });
  const auto broken = [weak = std::weak_ptr(context_)](const base::Status& why) {
    if (const auto context = weak.lock()) context->end(why);
  };
  const auto left = [weak = std::weak_ptr(context_)](uint32_t rank) {
    if (const auto context = weak.lock()) context->hear_left(rank);
  };
  const auto look = [weak = std::weak_ptr(context_)] {
    const auto context = weak.lock();
    if (context == nullptr) return collective::Group::Elsewhere{};
    const intranode::RankContext::Sleep sleep = context->asleep();
    return collective::Group::Elsewhere{context->operations(), collective::kind_name(sleep.kind), sleep.on, sleep.has_come, sleep.since,
                                        intranode::describe(context->decisions())};
  };
  calls_.on_loop([&] { messages_->engine()->watch({broken, left, look}); });
}

SharedGroup::~SharedGroup() {
  keep_tuning();
  context_->leave();
  messages_->leave();  // its thread may be in an operation by messages
  queue_->end();
}

GroupInfo SharedGroup::info() {
  GroupInfo info = messages_->info();
  info.transport = "shm";
  info.operations = context_->operations();
  info.tuning = intranode::describe(context_->decisions());
  if (info.broken.ok()) info.broken = context_->broken();
  return info;
}

base::Result<GroupRef> SharedGroup::shrink(const CallOptions& options) {
  context_->give_up(base::Status(MV_ESTATE, "the group was shrunk"));
  return messages_->shrink(options);
}

/// Only the lowest rank, whose knowledge counts when a group is opened. At the end of the group: a file may be slow.
void SharedGroup::keep_tuning() noexcept {
  try {
    if (is_kept_.exchange(true)) return;
    const auto decisions = context_->decisions();
    if (!decisions.empty()) base::log_debug("all-reduces of a group of {} ranks: {}", members().size(), intranode::describe(decisions));
    if (messages_->engine()->setting().rank == 0 && context_->trials_ended() > 0)
      api::keep_tuning(calls_.settings().tuning, members().size(), decisions);
  } catch (const std::exception&) {  // out of memory: the next group tries again
  }
}

base::Status SharedGroup::close() {
  keep_tuning();
  context_->leave();
  return messages_->close();
}

/// The message comes first: what shared memory says of a rank has no text.
base::Status SharedGroup::abort(const std::string& reason) {
  base::Status status = messages_->abort(reason);
  context_->leave();
  return status;
}

// ------------------------------------------------------------ operations

Started SharedGroup::run(Operation&& operation, const CallOptions& options) {
  if (collective::is_between_two(operation.kind)) return messages_->run(std::move(operation), options);
  const collective::Setting& setting = messages_->engine()->setting();
  if (base::Status wrong = check_operation(operation, setting.rank, setting.size); !wrong.ok()) return {std::move(wrong), nullptr};
  const base::Nanos until = calls_.deadline(options, true);
  bool begun = false;
  if (options.mode == Mode::kBlocking) {
    if (const SharedQueue::Turn turn = queue_->try_turn()) {
      base::Status status = queue_->carry_out(operation, until);
      if (status.ok() && collective::is_by_messages(operation.kind)) return messages_->run(std::move(operation), options);
      if (status.code() != MV_EINTR) return {queue_->settle(std::move(status)), nullptr};
      if (!options.keep_on_interrupt) return {interrupted(), nullptr};
      begun = true;
      const auto call = calls_.make_call(options, true);
      queue_->push({std::move(operation), call, begun, nullptr}, SharedQueue::Awaited::kYes);  // the queue's thread continues it after this turn
      return {std::move(status), call};
    }
  }
  const auto call = calls_.make_call(options, true);
  queue_->push({std::move(operation), call, begun, nullptr}, options.mode == Mode::kBlocking ? SharedQueue::Awaited::kYes : SharedQueue::Awaited::kNo);
  if (options.mode != Mode::kBlocking) return {{}, call};
  return await(call, options);
}

/// For the queue's thread, which waits for the end: operations keep their order.
base::Status SharedGroup::by_messages(const Operation& operation, base::Nanos deadline) {
  CallOptions options;
  options.timeout = deadline == base::kNever ? base::kNever : std::max(base::Nanos{1}, deadline - calls_.loop().now());
  return messages_->run(Operation(operation), options).status;
}

/// Waits for a call that is queued behind others.
Started SharedGroup::await(const std::shared_ptr<Call>& call, const CallOptions& options) {
  const bool is_interrupted = call->help() == MV_EINTR && !call->done();
  const transport::Driven driven =
      is_interrupted ? transport::Driven::kInterrupted : calls_.drive_until([&] { return call->done(); }, call->deadline());
  if (driven == transport::Driven::kInterrupted && options.keep_on_interrupt)
    return {base::Status(MV_EINTR, "a signal interrupted the wait; the call continues"), call};
  if (driven != transport::Driven::kDone) call->withdraw(driven == transport::Driven::kInterrupted ? MV_EINTR : driven == transport::Driven::kTimeout ? MV_ETIMEOUT : MV_ESTATE);
  return {call->status(), nullptr};
}

/// Ends an operation after a signal, and the group with it, because the other ranks count on this one.
base::Status SharedGroup::interrupted() {
  queue_->give_up(base::Status(MV_EINTR, "a signal interrupted an operation of the group, which broke the group"));
  return queue_->settle(context_->broken());
}

base::Result<collective::Shape> SharedGroup::drain(const CallOptions& options) {
  const base::Nanos until = calls_.deadline(options, true);
  const auto turn = queue_->turn(until);
  if (!turn.ok()) return turn.status();
  auto shape = context_->drain(until);
  const bool again = shape.ok() || shape.status().code() == MV_EINTR || shape.status().code() == MV_ETIMEOUT;
  if (!again) return queue_->settle(shape.status());
  return shape;
}

/// All ranks announce the operation and compare its shape in shared memory, as for any other.
/// The values go by messages.
base::Result<CustomReductionRef> SharedGroup::custom(Operation operation, const CallOptions& options) {
  const collective::Setting& setting = messages_->engine()->setting();
  if (base::Status wrong = check_operation(operation, setting.rank, setting.size); !wrong.ok()) return wrong;
  const base::Nanos until = calls_.deadline(options, true);
  const auto turn = queue_->turn(until);
  if (!turn.ok()) return turn.status();
  base::Status status = queue_->carry_out(operation, until);
  if (status.code() == MV_EINTR) return interrupted();
  if (!status.ok()) return queue_->settle(std::move(status));
  return messages_->custom(std::move(operation), options);
}

}  // namespace mv::api
