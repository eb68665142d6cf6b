// The C interface of groups and their operations: handles and arguments. api::Group does the work.

#include <polyverso/group.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "api/group/group.hpp"
#include "api/group/stage.hpp"
#include "base/undo.hpp"
#include "boundary.hpp"
#include "calls.hpp"
#include "group_arrays.hpp"
#include "group_calls.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "state.hpp"

namespace mv::capi {

using collective::Array;
using What = collective::Kind;
using collective::Operation;
using math::Reduction;

static_assert(static_cast<uint64_t>(MV_ANY_RANK) == collective::kAnyRank);
static_assert(static_cast<int>(Reduction::kSum) == MV_REDUCE_SUM && static_cast<int>(Reduction::kAverage) == MV_REDUCE_AVG);

base::Result<std::vector<Array>> read_arrays(const mv_array* arrays, uint64_t count) {
  if (count > kMostArrays) return base::error(MV_EINVAL, "{} arrays: one operation takes at most {}", count, kMostArrays);
  if (arrays == nullptr && count > 0) return base::error(MV_EINVAL, "arrays is NULL, but count is {}", count);
  std::vector<Array> read;
  for (uint64_t i = 0; i < count; ++i) {
    if (arrays[i].note > collective::kMostNote) return base::error(MV_EINVAL, "array {}: note is {}, at most {}", i, arrays[i].note, collective::kMostNote);
    read.push_back({static_cast<std::byte*>(arrays[i].data), arrays[i].count, arrays[i].dtype, static_cast<uint8_t>(arrays[i].note)});
  }
  return read;
}

base::Status check_group_flags(uint32_t flags) {
  if ((flags & ~uint32_t{MV_DRAINING}) == 0) return {};
  return base::error(MV_EINVAL, "flags {:#x}: some bits are not in mv_group_flag", flags);
}

namespace {

constexpr uint32_t kFirstGroupInfo = offsetof(mv_group_info, elder);
constexpr size_t kLongestGroupName = 255;
constexpr uint32_t kFirstDrained = sizeof(mv_drained);

base::Result<Reduction> read_reduction(int32_t reduction) {
  if (reduction < MV_REDUCE_SUM || reduction > MV_REDUCE_AVG) return base::error(MV_EINVAL, "{} is not an mv_reduction", reduction);
  return static_cast<Reduction>(reduction);
}

base::Status open(State& state, const char* function, mv_node node, mv_group* group, bool here, std::span<const int64_t> workers) {
  if (group == nullptr) return base::Status(MV_EINVAL, "the pointer for the handle is NULL");
  auto pin = find_working_node(state, function, node);
  if (!pin.ok()) return pin.status();
  const NodeRef& entry = *pin.value();
  const int64_t handle = state.groups.reserve();  // reserved first: an opened group must get a handle
  base::Undo reserved([&] { state.groups.abandon(handle); });
  auto opened = entry->node->open_group(here ? entry->node->workers_here() : std::vector<int64_t>(workers.begin(), workers.end()), {});
  if (!opened.ok()) return opened.status();
  reserved.keep();
  state.groups.publish(handle, {entry, std::move(opened).value()});
  *group = handle;
  return {};
}

/// Copies of the operation's arrays that are on devices; null if there are none. Without them this rank can't do what the others expect.
base::Result<std::shared_ptr<api::Staging>> stage(const GroupEntry& entry, Operation& operation) {
  if (!tensor_space().devices.any_opened() || entry.group->takes_devices(operation)) return std::shared_ptr<api::Staging>();
  const std::vector<int64_t>& members = entry.group->members();
  const auto rank = std::ranges::find(members, entry.node->node->identity().worker_id) - members.begin();
  const auto ranks = static_cast<int64_t>(members.size());
  if (auto status = api::check_operation(operation, rank, ranks); !status.ok()) return status;
  auto staging = api::stage_operation(operation, static_cast<uint64_t>(rank), members.size(), find_device_of);
  if (!staging.ok()) entry.group->give_up(staging.status());
  return staging;
}

/// Carries out the operation of make(const GroupEntry&) -> Result<Operation>, according to the options.
template <typename Make>
mv_status operate(const char* function, mv_group group, const mv_call_options* options, Make make) {
  return with_group(function, group, [&](State& state, const GroupEntry& entry) -> base::Status {
    CallPlan plan;
    if (auto status = plan_call(function, options, MayForget::kNo, &plan, MayLabel::kYes); !status.ok()) return status;
    if (plan.options.mode == api::Mode::kBlocking)
      if (auto status = not_reducing(entry); !status.ok()) return status;
    base::Result<Operation> operation = make(entry);
    if (!operation.ok()) return operation.status();
    operation.value().label = plan.options.label;
    auto staging = stage(entry, operation.value());
    if (!staging.ok()) return staging.status();
    return run_call(state, entry.node, plan, [&](const api::CallOptions& how) {
      const auto start = [&](const api::CallOptions& options) { return entry.group->run(std::move(operation).value(), options); };
      return api::run_staged(*entry.node->node, staging.value(), how, start);
    });
  });
}

base::Result<Operation> one_array(What kind, const void* in, void* out, uint64_t count, mv_dtype dtype) {
  Operation operation;
  operation.kind = kind;
  operation.out = {{static_cast<std::byte*>(out), count, dtype}};
  if (in != nullptr && in != out) operation.in = {static_cast<const std::byte*>(in)};
  return operation;
}

/// An operation on a part for each rank, out of place. `all_out`: `count` is of each part of `out`; otherwise of `out`.
base::Result<Operation> parts_of_ranks(const GroupEntry& entry, What kind, const void* in, void* out, uint64_t count, bool all_out, mv_dtype dtype) {
  const uint64_t ranks = entry.group->members().size();
  if (count > UINT64_MAX / 16 / ranks) return base::error(MV_EINVAL, "count is {}", count);
  auto operation = one_array(kind, nullptr, out, all_out ? count * ranks : count, dtype);
  operation.value().in = {static_cast<const std::byte*>(in)};
  return operation;
}

/// Sets the root. Negative values are refused here; others are checked as a rank later, with their number.
base::Status set_root(Operation& operation, int64_t root) {
  if (root < 0) return base::error(MV_EINVAL, "root {} is not a rank", root);
  operation.root = static_cast<uint64_t>(root);
  return {};
}

base::Result<Operation> many_arrays(const mv_array* in, const mv_array* out, uint64_t arrays, int32_t reduction, uint32_t flags) {
  if (auto status = check_group_flags(flags); !status.ok()) return status;
  auto how = read_reduction(reduction);
  if (!how.ok()) return how.status();
  auto results = read_arrays(out, arrays);
  if (!results.ok()) return results.status();
  Operation operation;
  operation.kind = What::kAllreduce;
  operation.reduction = how.value();
  operation.draining = (flags & MV_DRAINING) != 0;
  operation.out = std::move(results).value();
  if (in == nullptr) return operation;
  auto values = read_arrays(in, arrays);
  if (!values.ok()) return values.status();
  for (uint64_t i = 0; i < arrays; ++i) {
    const Array &from = values.value()[i], &to = operation.out[i];
    if (from.count != to.count || from.dtype != to.dtype)
      return base::error(MV_ESHAPE, "array {}: {} elements of dtype {} in `in`, but {} of dtype {} in `out`", i, from.count, from.dtype, to.count, to.dtype);
    operation.in.push_back(from.data);
  }
  return operation;
}

base::Status describe(const GroupEntry& entry, mv_group_info* out) {
  if (out == nullptr) return base::Status(MV_EINVAL, "info is NULL");
  auto read = read_struct("mv_group_describe", "mv_group_info", out, mv_group_info MV_GROUP_INFO_INIT, kFirstGroupInfo);
  if (!read.ok()) return read.status();
  const api::GroupInfo from = entry.group->info();
  mv_group_info info = MV_GROUP_INFO_INIT;
  info.size = out->size;
  info.rank = from.rank;
  info.ranks = from.size;
  info.hosts = from.hosts;
  info.bytes_sent = from.sent;
  info.bytes_received = from.received;
  info.operations = from.operations;
  info.broken = from.broken.code();
  info.elder = from.elder;
  info.generation = from.generation;
  const auto copy = [](auto& to, const std::string& text) { std::memcpy(to, text.data(), std::min(text.size(), sizeof(to) - 1)); };
  copy(info.transport, from.transport);
  copy(info.why, from.broken.text());
  copy(info.collective, from.collective);
  copy(info.collective_why, from.collective_why);
  copy(info.tuning, from.tuning);
  std::memcpy(out, &info, std::min<size_t>(sizeof(info), info.size));
  return {};
}

base::Status drain(const GroupEntry& entry, mv_array* arrays, uint64_t capacity, mv_drained* next, const mv_call_options* options) {
  constexpr const char* kFunction = "mv_allreduce_drain";
  if (next == nullptr) return base::Status(MV_EINVAL, "next is NULL");
  if (arrays == nullptr && capacity > 0) return base::error(MV_EINVAL, "arrays is NULL, but capacity is {}", capacity);
  auto read = read_struct(kFunction, "mv_drained", next, mv_drained MV_DRAINED_INIT, kFirstDrained);
  if (!read.ok()) return read.status();
  CallPlan plan;
  if (auto status = plan_call(kFunction, options, MayForget::kNo, &plan); !status.ok()) return status;
  if (plan.options.mode != api::Mode::kBlocking) return base::Status(MV_EINVAL, "MV_ASYNC is not supported: the call blocks");
  const auto drained = entry.group->drain(plan.options);
  if (!drained.ok()) return drained.status();
  const collective::Shape& shape = drained.value();
  next->finished = shape.finished ? 1 : 0;
  next->reduction = shape.finished || shape.custom ? 0 : static_cast<int32_t>(shape.reduction);
  next->arrays = shape.arrays.size();
  if (shape.arrays.size() > capacity) return base::error(MV_EINVAL, "{} arrays, but room for {}: call again with more room", shape.arrays.size(), capacity);
  for (size_t i = 0; i < shape.arrays.size(); ++i) arrays[i] = {nullptr, shape.arrays[i].count, shape.arrays[i].dtype, shape.arrays[i].note};
  return {};
}

/// Takes part in one operation with neutral values.
base::Status reduce_nothing(api::Group& group, collective::Shape shape, const api::CallOptions& options) {
  if (shape.custom) return base::Status(MV_EDISAGREE, "the other ranks use a custom reduction, which has no known neutral value for this rank to send");
  std::vector<std::vector<std::byte>> memory;
  Operation operation;
  operation.kind = What::kAllreduce;
  operation.reduction = shape.reduction;
  operation.draining = true;
  for (Array array : shape.arrays) {
    memory.emplace_back(array.bytes());
    array.data = memory.back().data();
    math::fill_neutral(shape.reduction, array.dtype, array.data, array.count);
    operation.out.push_back(array);
  }
  return group.run(std::move(operation), options).status;
}

base::Status drain_with_zeros(const GroupEntry& entry, const mv_call_options* options) {
  CallPlan plan;
  if (auto status = plan_call("mv_allreduce_zeros", options, MayForget::kNo, &plan); !status.ok()) return status;
  if (plan.options.mode != api::Mode::kBlocking) return base::Status(MV_EINVAL, "MV_ASYNC is not supported: the call blocks");
  plan.options.keep_on_interrupt = false;
  for (;;) {
    auto shape = entry.group->drain(plan.options);
    if (!shape.ok()) return shape.status();
    if (shape.value().finished) return {};
    if (auto status = reduce_nothing(*entry.group, std::move(shape).value(), plan.options); !status.ok()) return status;
  }
}

/// The plan of a call that only blocks and makes a group.
base::Status plan_blocking(const char* function, const mv_call_options* options, const mv_group* made, CallPlan* plan) {
  if (made == nullptr) return base::Status(MV_EINVAL, "the pointer for the handle is NULL");
  if (auto status = plan_call(function, options, MayForget::kNo, plan); !status.ok()) return status;
  if (plan->options.mode != api::Mode::kBlocking) return base::Status(MV_EINVAL, "MV_ASYNC is not supported: the call blocks");
  return {};
}

base::Status shrink(State& state, const GroupEntry& entry, const mv_call_options* options, mv_group* survivors) {
  CallPlan plan;
  if (auto status = plan_blocking("mv_group_shrink", options, survivors, &plan); !status.ok()) return status;
  const int64_t handle = state.groups.reserve();
  base::Undo reserved([&] { state.groups.abandon(handle); });
  auto shrunk = entry.group->shrink(plan.options);
  if (!shrunk.ok()) return shrunk.status();
  reserved.keep();
  state.groups.publish(handle, {entry.node, std::move(shrunk).value()});
  *survivors = handle;
  return {};
}

base::Result<std::string> read_name(const char* name) {
  std::string text = name != nullptr ? name : "";
  if (text.size() > kLongestGroupName) return base::error(MV_EINVAL, "the name has {} bytes, at most {}", text.size(), kLongestGroupName);
  return text;
}

base::Status grow(State& state, const GroupEntry& entry, const char* name, uint64_t ranks, const mv_call_options* options, mv_group* grown) {
  CallPlan plan;
  if (auto status = plan_blocking("mv_group_grow", options, grown, &plan); !status.ok()) return status;
  auto text = read_name(name);
  if (!text.ok()) return text.status();
  const auto workers = static_cast<uint64_t>(entry.node->node->identity().num_workers);
  if (ranks > workers) return base::error(MV_EINVAL, "ranks is {}, but the cluster has {} workers", ranks, workers);
  const int64_t handle = state.groups.reserve();
  base::Undo reserved([&] { state.groups.abandon(handle); });
  auto made = entry.group->grow({std::move(text).value(), static_cast<uint32_t>(ranks)}, plan.options);
  if (!made.ok()) return made.status();
  *grown = 0;
  if (made.value() == nullptr) return {};
  reserved.keep();
  state.groups.publish(handle, {entry.node, std::move(made).value()});
  *grown = handle;
  return {};
}

base::Status join(State& state, mv_node node, const char* name, const mv_call_options* options, mv_group* group) {
  CallPlan plan;
  if (auto status = plan_blocking("mv_group_join", options, group, &plan); !status.ok()) return status;
  auto text = read_name(name);
  if (!text.ok()) return text.status();
  auto pin = find_working_node(state, "mv_group_join", node);
  if (!pin.ok()) return pin.status();
  const NodeRef& entry = *pin.value();
  const int64_t handle = state.groups.reserve();
  base::Undo reserved([&] { state.groups.abandon(handle); });
  auto made = entry->node->join_group(text.value(), plan.options);
  if (!made.ok()) return made.status();
  reserved.keep();
  state.groups.publish(handle, {entry, std::move(made).value()});
  *group = handle;
  return {};
}

base::Status close_group(State& state, mv_group handle) {
  auto pin = find_group(state, "mv_group_close", handle, Broken::kFound);
  if (!pin.ok()) return pin.status();
  if (!state.groups.close(pin.value())) return not_a(state, "mv_group_close", HandleKind::kGroup, handle);
  return named("mv_group_close", pin.value()->group->close());
}

base::Status abort_group(State& state, mv_group handle, const char* reason) {
  auto pin = find_group(state, "mv_group_abort", handle, Broken::kFound);
  if (!pin.ok()) return pin.status();
  if (!state.groups.close(pin.value())) return not_a(state, "mv_group_abort", HandleKind::kGroup, handle);
  return named("mv_group_abort", pin.value()->group->abort(reason_line(reason)));
}

}  // namespace
}  // namespace mv::capi

namespace base = mv::base;
using namespace mv::capi;

mv_status mv_group_open(mv_node node, const int64_t* workers, uint64_t count, mv_group* group) {
  constexpr const char* kFunction = "mv_group_open";
  return boundary(kFunction, [&](State& state) -> base::Status {
    if (workers == nullptr && count > 0) return base::error(MV_EINVAL, "{}: workers is NULL, but count is {}", kFunction, count);
    if (workers != nullptr && count == 0) return base::error(MV_EINVAL, "{}: an empty list of workers; pass NULL, 0 for all workers", kFunction);
    if (count > kMostArrays) return base::error(MV_EINVAL, "{}: count is {}", kFunction, count);
    return named(kFunction, open(state, kFunction, node, group, false, {workers, static_cast<size_t>(count)}));
  });
}
mv_status mv_group_open_host(mv_node node, mv_group* group) {
  constexpr const char* kFunction = "mv_group_open_host";
  return boundary(kFunction, [&](State& state) { return named(kFunction, open(state, kFunction, node, group, true, {})); });
}
mv_status mv_group_close(mv_group group) {
  return boundary("mv_group_close", [&](State& state) { return close_group(state, group); });
}
mv_status mv_group_abort(mv_group group, const char* reason) {
  return boundary("mv_group_abort", [&](State& state) { return abort_group(state, group, reason); });
}
mv_status mv_group_describe(mv_group group, mv_group_info* info) {
  return with_group("mv_group_describe", group, [&](State&, const GroupEntry& entry) { return describe(entry, info); });
}
mv_status mv_group_members(mv_group group, int64_t* workers, uint64_t capacity, uint64_t* count) {
  return with_group("mv_group_members", group, [&](State&, const GroupEntry& entry) -> base::Status {
    if (count == nullptr) return base::Status(MV_EINVAL, "count is NULL");
    const std::vector<int64_t>& members = entry.group->members();
    *count = members.size();
    if (members.size() > capacity) return base::error(MV_EINVAL, "the group has {} ranks, but the array has room for {}", members.size(), capacity);
    if (workers == nullptr) return base::Status(MV_EINVAL, "workers is NULL");
    std::copy(members.begin(), members.end(), workers);
    return {};
  });
}
mv_status mv_group_shrink(mv_group group, const mv_call_options* options, mv_group* survivors) {
  return with_group_of_others("mv_group_shrink", group,
                              [&](State& state, const GroupEntry& entry) { return shrink(state, entry, options, survivors); });
}

mv_status mv_group_grow(mv_group group, const char* name, uint64_t ranks, const mv_call_options* options, mv_group* grown) {
  return with_group_of_others("mv_group_grow", group,
                              [&](State& state, const GroupEntry& entry) { return grow(state, entry, name, ranks, options, grown); });
}
mv_status mv_group_join(mv_node node, const char* name, const mv_call_options* options, mv_group* group) {
  return boundary("mv_group_join", [&](State& state) { return mv::capi::join(state, node, name, options, group); });
}

mv_status mv_allreduce(mv_group group, const void* in, void* out, uint64_t count, mv_dtype dtype, int32_t reduction, const mv_call_options* options) {
  return operate("mv_allreduce", group, options, [&](const GroupEntry&) -> base::Result<Operation> {
    auto operation = one_array(What::kAllreduce, in, out, count, dtype);
    auto how = read_reduction(reduction);
    if (!how.ok()) return how.status();
    operation.value().reduction = how.value();
    return operation;
  });
}
mv_status mv_allreduce_many(mv_group group, const mv_array* in, const mv_array* out, uint64_t arrays, int32_t reduction, uint32_t flags,
                            uint64_t* contributors, const mv_call_options* options) {
  return operate("mv_allreduce_many", group, options, [&](const GroupEntry&) {
    auto operation = many_arrays(in, out, arrays, reduction, flags);
    if (operation.ok()) operation.value().contributors = contributors;
    return operation;
  });
}
mv_status mv_reduce(mv_group group, const void* in, void* out, uint64_t count, mv_dtype dtype, int32_t reduction, int64_t root,
                    const mv_call_options* options) {
  return operate("mv_reduce", group, options, [&](const GroupEntry& entry) -> base::Result<Operation> {
    // Only the root writes the result; on other ranks the value may be in either buffer.
    const bool may_lack_out = out == nullptr && entry.group->info().rank != root;
    auto operation = one_array(What::kReduce, in, may_lack_out ? const_cast<void*>(in) : out, count, dtype);
    auto how = read_reduction(reduction);
    if (!how.ok()) return how.status();
    operation.value().reduction = how.value();
    if (auto status = set_root(operation.value(), root); !status.ok()) return status;
    return operation;
  });
}
mv_status mv_broadcast(mv_group group, void* data, uint64_t count, mv_dtype dtype, int64_t root, const mv_call_options* options) {
  const mv_array array = {data, count, dtype, 0};
  return mv_broadcast_many(group, &array, 1, root, options);
}
mv_status mv_broadcast_many(mv_group group, const mv_array* data, uint64_t arrays, int64_t root, const mv_call_options* options) {
  return operate("mv_broadcast", group, options, [&](const GroupEntry&) -> base::Result<Operation> {
    auto values = read_arrays(data, arrays);
    if (!values.ok()) return values.status();
    Operation operation;
    operation.kind = What::kBroadcast;
    operation.out = std::move(values).value();
    if (auto status = set_root(operation, root); !status.ok()) return status;
    return operation;
  });
}
mv_status mv_allgather(mv_group group, const void* in, uint64_t count, void* out, mv_dtype dtype, const mv_call_options* options) {
  return operate("mv_allgather", group, options, [&](const GroupEntry& entry) -> base::Result<Operation> {
    const auto ranks = entry.group->members().size();
    if (in == nullptr && count > 0) return base::error(MV_EINVAL, "in is NULL, but count is {}", count);
    if (count > UINT64_MAX / 16 / ranks) return base::error(MV_EINVAL, "count is {}", count);
    auto operation = one_array(What::kAllgather, nullptr, out, count * ranks, dtype);
    if (count > 0) operation.value().in = {static_cast<const std::byte*>(in)};
    return operation;
  });
}
mv_status mv_reduce_scatter(mv_group group, const void* in, void* out, uint64_t count, mv_dtype dtype, int32_t reduction,
                            const mv_call_options* options) {
  return operate("mv_reduce_scatter", group, options, [&](const GroupEntry&) -> base::Result<Operation> {
    if (in == nullptr && count > 0) return base::error(MV_EINVAL, "in is NULL, but count is {}", count);
    auto operation = one_array(What::kReduceScatter, nullptr, out, count, dtype);
    if (count > 0) operation.value().in = {static_cast<const std::byte*>(in)};
    auto how = read_reduction(reduction);
    if (!how.ok()) return how.status();
    operation.value().reduction = how.value();
    return operation;
  });
}
mv_status mv_gather(mv_group group, const void* mine, void* all, uint64_t count, mv_dtype dtype, int64_t root, const mv_call_options* options) {
  return operate("mv_gather", group, options, [&](const GroupEntry& entry) {
    auto operation = parts_of_ranks(entry, What::kGather, mine, all, count, true, dtype);
    if (auto status = operation.ok() ? set_root(operation.value(), root) : base::Status(); !status.ok()) return base::Result<Operation>(status);
    return operation;
  });
}
mv_status mv_scatter(mv_group group, const void* all, void* mine, uint64_t count, mv_dtype dtype, int64_t root, const mv_call_options* options) {
  return operate("mv_scatter", group, options, [&](const GroupEntry& entry) {
    auto operation = parts_of_ranks(entry, What::kScatter, all, mine, count, false, dtype);
    if (auto status = operation.ok() ? set_root(operation.value(), root) : base::Status(); !status.ok()) return base::Result<Operation>(status);
    return operation;
  });
}
mv_status mv_alltoall(mv_group group, const void* send, void* receive, uint64_t count, mv_dtype dtype, const mv_call_options* options) {
  return operate("mv_alltoall", group, options,
                 [&](const GroupEntry& entry) { return parts_of_ranks(entry, What::kAlltoall, send, receive, count, true, dtype); });
}
mv_status mv_alltoall_counts(mv_group group, const void* send, const uint64_t* send_counts, void* receive, const uint64_t* receive_counts,
                             mv_dtype dtype, const mv_call_options* options) {
  return operate("mv_alltoall_counts", group, options, [&](const GroupEntry& entry) -> base::Result<Operation> {
    if (send_counts == nullptr || receive_counts == nullptr)
      return base::error(MV_EINVAL, "{} is NULL", send_counts == nullptr ? "send_counts" : "receive_counts");
    const size_t ranks = entry.group->members().size();
    for (const uint64_t* counts : {send_counts, receive_counts})
      for (size_t rank = 0; rank < ranks; ++rank)
        if (counts[rank] > UINT64_MAX / 16 / ranks) return base::error(MV_EINVAL, "the count of rank {} is {}", rank, counts[rank]);
    const uint64_t received = std::accumulate(receive_counts, receive_counts + ranks, uint64_t{0});
    auto operation = parts_of_ranks(entry, What::kAlltoallCounts, send, receive, received, false, dtype);
    if (operation.ok()) {
      operation.value().send_counts.assign(send_counts, send_counts + ranks);
      operation.value().receive_counts.assign(receive_counts, receive_counts + ranks);
    }
    return operation;
  });
}
mv_status mv_send(mv_group group, const void* data, uint64_t count, mv_dtype dtype, int64_t to, int64_t tag, const mv_call_options* options) {
  return operate("mv_send", group, options, [&](const GroupEntry&) -> base::Result<Operation> {
    auto operation = one_array(What::kSend, nullptr, const_cast<void*>(data), count, dtype);  // only read
    operation.value().tag = tag;
    operation.value().root = static_cast<uint64_t>(to);
    return operation;
  });
}
mv_status mv_recv(mv_group group, void* data, uint64_t count, mv_dtype dtype, int64_t from, int64_t tag, int64_t* source,
                  const mv_call_options* options) {
  return operate("mv_recv", group, options, [&](const GroupEntry&) -> base::Result<Operation> {
    auto operation = one_array(What::kRecv, nullptr, data, count, dtype);
    operation.value().tag = tag;
    operation.value().root = static_cast<uint64_t>(from);
    operation.value().source = source;
    return operation;
  });
}
mv_status mv_group_barrier(mv_group group, const mv_call_options* options) {
  return operate("mv_group_barrier", group, options, [](const GroupEntry&) -> base::Result<Operation> { return Operation{}; });
}

mv_status mv_allreduce_drain(mv_group group, mv_array* arrays, uint64_t capacity, mv_drained* next, const mv_call_options* options) {
  return with_group_of_others("mv_allreduce_drain", group,
                              [&](State&, const GroupEntry& entry) { return drain(entry, arrays, capacity, next, options); });
}
mv_status mv_allreduce_zeros(mv_group group, const mv_call_options* options) {
  return with_group_of_others("mv_allreduce_zeros", group, [&](State&, const GroupEntry& entry) { return drain_with_zeros(entry, options); });
}
