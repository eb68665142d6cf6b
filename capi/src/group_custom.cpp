// All-reduces by the caller's own function, or manual.

#include <polyverso/group.h>

#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/group/device_reduction.hpp"
#include "base/undo.hpp"
#include "boundary.hpp"
#include "group_arrays.hpp"
#include "group_calls.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "state.hpp"

namespace mv::capi {
namespace {

base::Result<api::CustomReductionRef> begin(const char* function, const GroupEntry& entry, const mv_array* values, uint64_t arrays, uint32_t flags,
                                             const mv_call_options* options) {
  CallPlan plan;
  if (auto status = plan_call(function, options, MayForget::kNo, &plan, MayLabel::kYes); !status.ok()) return status;
  if (plan.options.mode != api::Mode::kBlocking) return base::Status(MV_EINVAL, "MV_ASYNC is not supported: the call blocks");
  if (auto status = not_reducing(entry); !status.ok()) return status;
  if (auto status = check_group_flags(flags); !status.ok()) return status;
  auto read = read_arrays(values, arrays);
  if (!read.ok()) return read.status();
  collective::Operation operation;
  operation.kind = collective::Kind::kCustom;
  operation.draining = (flags & MV_DRAINING) != 0;
  operation.out = std::move(read).value();
  operation.label = plan.options.label;
  if (!tensor_space().devices.any_opened()) return entry.group->custom(std::move(operation), plan.options);
  return api::reduce_on_devices(*entry.group, std::move(operation), plan.options, find_device_of);
}

void show(const std::vector<collective::Array>& theirs, mv_array* shown) {
  for (size_t i = 0; i < theirs.size(); ++i) shown[i] = {theirs[i].data, theirs[i].count, theirs[i].dtype, 0};
}

/// The whole reduction loop, around the caller's function.
base::Status reduce(api::CustomReduction& custom, ReducingThread& reducing, const mv_array* values, uint64_t arrays, mv_reducer reducer, void* user,
                    uint64_t* contributors) {
  std::vector<mv_array> shown(arrays);
  for (;;) {
    const auto theirs = custom.next();
    if (!theirs.ok() && theirs.status().code() == MV_EINTR) {
      static_cast<void>(custom.end());
      return theirs.status();
    }
    if (!theirs.ok()) return theirs.status();
    if (theirs.value() == nullptr) break;
    show(*theirs.value(), shown.data());
    reducing.store(std::this_thread::get_id(), std::memory_order_relaxed);
    const mv_status status = [&] {
      const base::Undo over([&] { reducing.store({}, std::memory_order_relaxed); });  // a function in C++ may throw
      return reducer(user, values, shown.data(), arrays);
    }();
    const base::Status outcome = check_outcome("reducer", status);
    if (auto status = custom.done(outcome); !status.ok()) return status;
  }
  const auto ended = custom.end();
  if (ended.ok() && contributors != nullptr) *contributors = ended.value();
  return ended.ok() ? base::Status() : ended.status();
}

base::Status check_status(mv_status status) {
  if (std::string_view(mv_status_name(status)) != "MV_UNKNOWN") return {};
  return base::error(MV_EINVAL, "{} is not an mv_status", status);
}

template <typename Work>
mv_status with_custom(const char* function, mv_custom custom, Work work) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_custom(state, function, custom);
    if (!pin.ok()) return pin.status();
    return named(function, work(state, pin.value()));
  });
}

}  // namespace
}  // namespace mv::capi

namespace base = mv::base;
using namespace mv::capi;

mv_status mv_allreduce_custom(mv_group group, const mv_array* values, uint64_t arrays, mv_reducer reducer, void* user, uint32_t flags,
                              uint64_t* contributors, const mv_call_options* options) {
  constexpr const char* kFunction = "mv_allreduce_custom";
  return with_group(kFunction, group, [&](State&, const GroupEntry& entry) -> base::Status {
    if (reducer == nullptr) return base::Status(MV_EINVAL, "the function is NULL");
    auto custom = begin(kFunction, entry, values, arrays, flags, options);
    if (!custom.ok()) return custom.status();
    return reduce(*custom.value(), *entry.reducing, values, arrays, reducer, user, contributors);
  });
}

mv_status mv_custom_begin(mv_group group, const mv_array* values, uint64_t arrays, uint32_t flags, const mv_call_options* options, mv_custom* custom) {
  constexpr const char* kFunction = "mv_custom_begin";
  return with_group(kFunction, group, [&](State& state, const GroupEntry& entry) -> base::Status {
    if (custom == nullptr) return base::Status(MV_EINVAL, "the pointer for the handle is NULL");
    auto begun = begin(kFunction, entry, values, arrays, flags, options);
    if (!begun.ok()) return begun.status();
    *custom = state.customs.insert({entry.node, entry.group, std::move(begun).value(), entry.reducing});
    return {};
  });
}
mv_status mv_custom_next(mv_custom custom, mv_array* theirs, int32_t* more) {
  return with_custom("mv_custom_next", custom, [&](State&, const CustomTable::Pin& pin) -> base::Status {
    if (more == nullptr) return base::Status(MV_EINVAL, "more is NULL");
    const auto next = pin->reduction->next();
    if (!next.ok()) return next.status();
    if (next.value() != nullptr && theirs == nullptr && !next.value()->empty()) return base::Status(MV_EINVAL, "theirs is NULL");
    *more = next.value() != nullptr ? 1 : 0;
    if (next.value() != nullptr) pin->reducing->store(std::this_thread::get_id(), std::memory_order_relaxed);
    if (next.value() != nullptr) show(*next.value(), theirs);
    return {};
  });
}
mv_status mv_custom_done(mv_custom custom, mv_status status) {
  return with_custom("mv_custom_done", custom, [&](State&, const CustomTable::Pin& pin) -> base::Status {
    if (auto wrong = check_status(status); !wrong.ok()) return wrong;
    pin->reducing->store({}, std::memory_order_relaxed);
    return pin->reduction->done(check_outcome("reducer", status));
  });
}
mv_status mv_custom_end(mv_custom custom, uint64_t* contributors) {
  return with_custom("mv_custom_end", custom, [&](State& state, const CustomTable::Pin& pin) -> base::Status {
    if (!state.customs.close(pin)) return not_a(state, "mv_custom_end", HandleKind::kCustom, custom);
    pin->reducing->store({}, std::memory_order_relaxed);
    const auto ended = pin->reduction->end();
    if (ended.ok() && contributors != nullptr) *contributors = ended.value();
    return ended.ok() ? base::Status() : ended.status();
  });
}
