// The C interface of the training strategies: handles and arguments. core/api/distlearn does the work.

#include <polyverso/distlearn.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/distlearn/settings.hpp"
#include "api/group/stage.hpp"
#include "base/undo.hpp"
#include "boundary.hpp"
#include "group_arrays.hpp"
#include "options.hpp"
#include "state.hpp"
#include "strategies.hpp"

namespace mv::capi {
namespace {

using distlearn::AllReduceEa;
using distlearn::AllReduceSgd;
using distlearn::Arrays;
using distlearn::AsyncEa;
using distlearn::Compressor;
using distlearn::LocalSgd;

template <typename T>
constexpr const char* kStrategyName = nullptr;
template <>
constexpr const char* kStrategyName<AllReduceSgd> = "an AllReduceSGD";
template <>
constexpr const char* kStrategyName<AllReduceEa> = "an AllReduceEA";
template <>
constexpr const char* kStrategyName<AsyncEa> = "an asynchronous elastic average";
template <>
constexpr const char* kStrategyName<LocalSgd> = "a local SGD";
template <>
constexpr const char* kStrategyName<Compressor> = "a compressed average";

/// Runs work(Strategy&) of an exported function, one at a time for each strategy.
template <typename Work>
mv_status with_any(const char* function, mv_strategy handle, Work work) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_strategy(state, function, handle);
    if (!pin.ok()) return pin.status();
    Strategy& strategy = *pin.value()->strategy;
    const std::unique_lock alone(strategy.call, std::try_to_lock);
    if (!alone.owns_lock()) return base::error(MV_ESTATE, "{}: another thread is in a call of this strategy", function);
    return named(function, work(strategy));
  });
}

template <typename T, typename Work>
mv_status with_whole(const char* function, mv_strategy handle, Work work) {
  return with_any(function, handle, [&](Strategy& strategy) -> base::Status {
    if (auto* found = std::get_if<std::unique_ptr<T>>(&strategy.of)) return work(strategy, **found);
    const char* other = std::visit([](auto& of) { return kStrategyName<std::remove_reference_t<decltype(*of)>>; }, strategy.of);
    return base::error(MV_EHANDLE, "{} is {}, not {}", handle, other, kStrategyName<T>);
  });
}

template <typename T, typename Work>
mv_status with(const char* function, mv_strategy handle, Work work) {
  return with_whole<T>(function, handle, [&](Strategy&, T& of) { return work(of); });
}

/// Runs work(arrays) on arrays in the host's memory: the caller's, or copies of those on devices. A call that a signal has interrupted
/// continues with its copies, which stay until it has ended: any other call meanwhile is MV_ESTATE.
template <typename Work>
base::Status on_host(Interrupted& interrupted, Arrays arrays, const Work& work) {
  const auto same = [](const collective::Array& a, const collective::Array& b) { return a.data == b.data && a.count == b.count && a.dtype == b.dtype; };
  const bool continues = interrupted.staging != nullptr && std::ranges::equal(interrupted.given, arrays, same);
  Interrupted now;
  if (continues) {
    now = interrupted;
  } else {
    now.given = arrays;
    auto staging = api::stage_arrays(arrays, find_device_of);
    if (!staging.ok()) return staging.status();
    now.staging = std::move(staging).value();
    now.staged = std::move(arrays);
  }
  base::Undo keep([&] { std::swap(interrupted, now); });  // after an exception, an operation may still use the copies
  base::Status status = work(now.staged);
  keep.keep();
  if (status.code() == MV_EINTR && now.staging != nullptr) interrupted = now;
  if (status.code() == MV_EINTR || status.code() == MV_ESTATE) return status;
  interrupted = {};
  return status.ok() && now.staging != nullptr ? now.staging->finish() : status;
}

/// Whether a call of a strategy, now, reads or writes its arrays. If not, those on devices need no copies.
template <typename T>
using UsesArrays = bool (*)(const T& strategy);
template <typename T>
bool always(const T&) { return true; }
template <typename T>
bool in_this_step(const T& strategy) { return strategy.uses_parameters(); }

/// Runs work(T&, arrays, time-out) of a blocking function.
template <typename T, typename Work>
mv_status with_arrays(const char* function, mv_strategy handle, const mv_array* given, uint64_t count, const mv_call_options* options, Work work,
                      UsesArrays<T> uses_arrays = always<T>) {
  return with_whole<T>(function, handle, [&](Strategy& whole, T& strategy) -> base::Status {
    CallPlan plan;
    if (auto status = plan_call(function, options, MayForget::kNo, &plan, MayLabel::kYes); !status.ok()) return status;
    if (plan.options.mode != api::Mode::kBlocking) return base::Status(MV_EINVAL, "MV_ASYNC is not supported: the call blocks");
    auto arrays = read_arrays(given, count);
    if (!arrays.ok()) return arrays.status();
    if constexpr (!std::is_same_v<T, AsyncEa>) strategy.peers().set_label(plan.options.label);
    if (!uses_arrays(strategy)) return work(strategy, arrays.value(), plan.options.timeout);
    if (!whole.computes_on_host) {
      try {
        return work(strategy, arrays.value(), plan.options.timeout);
      } catch (const distlearn::NoRoom&) {
        whole.computes_on_host = true;
      }
    }
    return on_host(whole.interrupted, std::move(arrays).value(), [&](const Arrays& here) { return work(strategy, here, plan.options.timeout); });
  });
}

/// Makes a strategy with make(node) and returns its handle.
template <typename Make>
mv_status open_in_group(const char* function, mv_group group, mv_strategy* out, Make make) {
  return boundary(function, [&](State& state) -> base::Status {
    if (out == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the handle is NULL", function);
    auto pin = find_group(state, function, group);
    if (!pin.ok()) return pin.status();
    auto strategy = std::make_shared<Strategy>();
    if (auto status = make(*pin.value()->node->node, pin.value()->group, *strategy); !status.ok()) return named(function, status);
    *out = state.strategies.insert({pin.value()->node, std::move(strategy)});
    return {};
  });
}

template <typename T>
mv_status close(const char* function, mv_strategy handle) {
  const mv_status status = with<T>(function, handle, [](T&) { return base::Status(); });
  if (status != MV_OK) return status;
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_strategy(state, function, handle);
    if (!pin.ok()) return pin.status();
    return state.strategies.close(pin.value()) ? base::Status() : not_a(state, function, HandleKind::kStrategy, handle);
  });
}

base::Result<std::unique_ptr<AsyncEa>> make_async_ea(TableEntry& entry, int64_t tau, double alpha) {
  const auto info = entry.table->info();
  if (!info.ok()) return info.status();
  if (auto status = AsyncEa::check(info.value(), tau, alpha); !status.ok()) return status;
  return std::make_unique<AsyncEa>(*entry.node->node, entry.table, info.value().spec, tau, alpha);
}

base::Result<distlearn::Gradients> matrices(const Arrays& arrays, const int64_t* rows, uint64_t row_count) {
  distlearn::Gradients gradients{arrays, std::vector<uint64_t>(arrays.size())};
  if (row_count == 0) return gradients;
  if (rows == nullptr || row_count != arrays.size())
    return base::error(MV_EINVAL, "{} row counts for {} arrays: give one for each array, or none", row_count, arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (rows[i] < 0) return base::error(MV_EINVAL, "array {} has {} rows", i, rows[i]);
    gradients.rows[i] = static_cast<uint64_t>(rows[i]);
  }
  return gradients;
}

base::Status told(const distlearn::Meter& meter, uint64_t* steps, uint64_t* operations, uint64_t* payload, uint64_t* dense) {
  if (steps == nullptr || operations == nullptr || payload == nullptr || dense == nullptr)
    return base::Status(MV_EINVAL, "a pointer for a result is NULL");
  *steps = meter.steps;
  *operations = meter.operations;
  *payload = meter.payload_bytes;
  *dense = meter.dense_bytes;
  return {};
}

}  // namespace
}  // namespace mv::capi

using mv::base::Nanos;
using mv::base::Status;
using mv::capi::AllReduceEa;
using mv::capi::AllReduceSgd;
using mv::capi::Arrays;
using mv::capi::AsyncEa;
using mv::capi::Compressor;
using mv::capi::LocalSgd;
using mv::capi::Strategy;

mv_status mv_strategy_meter(mv_strategy strategy, uint64_t* steps, uint64_t* operations, uint64_t* payload, uint64_t* dense) {
  return mv::capi::with_any("mv_strategy_meter", strategy, [&](Strategy& found) {
    return std::visit(
        [&](auto& of) {
          if constexpr (std::is_same_v<std::remove_reference_t<decltype(*of)>, AsyncEa>)
            return mv::capi::told(of->meter, steps, operations, payload, dense);
          else
            return mv::capi::told(of->peers().meter, steps, operations, payload, dense);
        },
        found.of);
  });
}
mv_status mv_strategy_cancel(mv_strategy strategy) {
  return mv::capi::with_any("mv_strategy_cancel", strategy, [&](Strategy& found) {
    std::visit(
        [](auto& of) {
          if constexpr (std::is_same_v<std::remove_reference_t<decltype(*of)>, AsyncEa>)
            of->withdraw();
          else
            of->peers().withdraw();
        },
        found.of);
    found.interrupted = {};
    return Status();
  });
}

mv_status mv_sgd_open(mv_group group, mv_allreduce_sgd* sgd) {
  return mv::capi::open_in_group("mv_sgd_open", group, sgd, [](auto& node, auto& in, Strategy& strategy) {
    strategy.of = std::make_unique<AllReduceSgd>(node, in);
    return Status();
  });
}
mv_status mv_sgd_sum_gradients(mv_allreduce_sgd sgd, const mv_array* gradients, uint64_t count, uint64_t* contributors,
                               const mv_call_options* options) {
  return mv::capi::with_arrays<AllReduceSgd>("mv_sgd_sum_gradients", sgd, gradients, count, options,
                                             [&](AllReduceSgd& of, const Arrays& arrays, Nanos timeout) {
                                               return of.sum(arrays, AllReduceSgd::Sum::kPlain, contributors, timeout);
                                             });
}
mv_status mv_sgd_sum_and_normalize(mv_allreduce_sgd sgd, const mv_array* gradients, uint64_t count, uint64_t* contributors,
                                   const mv_call_options* options) {
  return mv::capi::with_arrays<AllReduceSgd>("mv_sgd_sum_and_normalize", sgd, gradients, count, options,
                                             [&](AllReduceSgd& of, const Arrays& arrays, Nanos timeout) {
                                               return of.sum(arrays, AllReduceSgd::Sum::kNormalized, contributors, timeout);
                                             });
}
mv_status mv_sgd_synchronize(mv_allreduce_sgd sgd, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<AllReduceSgd>(
      "mv_sgd_synchronize", sgd, parameters, count, options,
      [](AllReduceSgd& of, const Arrays& arrays, Nanos timeout) { return of.synchronize(arrays, timeout); });
}
mv_status mv_sgd_close(mv_allreduce_sgd sgd) { return mv::capi::close<AllReduceSgd>("mv_sgd_close", sgd); }

mv_status mv_ea_open(mv_group group, int64_t tau, double alpha, mv_allreduce_ea* ea) {
  return mv::capi::open_in_group("mv_ea_open", group, ea, [&](auto& node, auto& in, Strategy& strategy) {
    if (auto status = AllReduceEa::check(tau, alpha); !status.ok()) return status;
    strategy.of = std::make_unique<AllReduceEa>(node, in, tau, alpha);
    return Status();
  });
}
mv_status mv_ea_average(mv_allreduce_ea ea, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<AllReduceEa>(
      "mv_ea_average", ea, parameters, count, options,
      [](AllReduceEa& of, const Arrays& arrays, Nanos timeout) { return of.average(arrays, timeout); });
}
mv_status mv_ea_synchronize_center(mv_allreduce_ea ea, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<AllReduceEa>(
      "mv_ea_synchronize_center", ea, parameters, count, options,
      [](AllReduceEa& of, const Arrays& arrays, Nanos timeout) { return of.synchronize_center(arrays, timeout); });
}
mv_status mv_ea_synchronize_parameters(mv_allreduce_ea ea, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<AllReduceEa>(
      "mv_ea_synchronize_parameters", ea, parameters, count, options,
      [](AllReduceEa& of, const Arrays& arrays, Nanos timeout) { return of.synchronize_parameters(arrays, timeout); });
}
mv_status mv_ea_read_center(mv_allreduce_ea ea, const mv_array* parameters, uint64_t count) {
  return mv::capi::with_arrays<AllReduceEa>("mv_ea_read_center", ea, parameters, count, nullptr,
                                            [](AllReduceEa& of, const Arrays& arrays, Nanos) { return of.read_center(arrays); });
}
mv_status mv_ea_close(mv_allreduce_ea ea) { return mv::capi::close<AllReduceEa>("mv_ea_close", ea); }

mv_status mv_async_ea_open(mv_table centre, int64_t tau, double alpha, mv_async_ea* ea) {
  constexpr const char* kFunction = "mv_async_ea_open";
  return mv::capi::boundary(kFunction, [&](mv::capi::State& state) -> Status {
    if (ea == nullptr) return mv::base::error(MV_EINVAL, "{}: the pointer for the handle is NULL", kFunction);
    auto pin = mv::capi::find_table(state, kFunction, centre);
    if (!pin.ok()) return pin.status();
    auto made = mv::capi::make_async_ea(*pin.value(), tau, alpha);
    if (!made.ok()) return mv::capi::named(kFunction, made.status());
    auto strategy = std::make_shared<Strategy>();
    strategy->of = std::move(made).value();
    *ea = state.strategies.insert({pin.value()->node, std::move(strategy)});
    return {};
  });
}
mv_status mv_async_ea_average(mv_async_ea ea, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<AsyncEa>("mv_async_ea_average", ea, parameters, count, options,
                                        [](AsyncEa& of, const Arrays& arrays, Nanos timeout) { return of.average(arrays, timeout); });
}
mv_status mv_async_ea_read(mv_async_ea ea, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<AsyncEa>("mv_async_ea_read", ea, parameters, count, options,
                                        [](AsyncEa& of, const Arrays& arrays, Nanos timeout) { return of.read(arrays, timeout); });
}
mv_status mv_async_ea_close(mv_async_ea ea) { return mv::capi::close<AsyncEa>("mv_async_ea_close", ea); }

mv_status mv_local_sgd_open(mv_group group, const char* settings, mv_local_sgd* local) {
  return mv::capi::open_in_group("mv_local_sgd_open", group, local, [&](auto& node, auto& in, Strategy& strategy) -> Status {
    const auto parsed = mv::distlearn::parse_local_settings(settings != nullptr ? settings : "");
    if (!parsed.ok()) return parsed.status();
    strategy.of = std::make_unique<LocalSgd>(node, in, parsed.value());
    return {};
  });
}
mv_status mv_local_sgd_step(mv_local_sgd local, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<LocalSgd>("mv_local_sgd_step", local, parameters, count, options,
                                         [](LocalSgd& of, const Arrays& arrays, Nanos timeout) { return of.step(arrays, timeout); },
                                         mv::capi::in_this_step<LocalSgd>);
}
mv_status mv_local_sgd_synchronize(mv_local_sgd local, const mv_array* parameters, uint64_t count, const mv_call_options* options) {
  return mv::capi::with_arrays<LocalSgd>(
      "mv_local_sgd_synchronize", local, parameters, count, options,
      [](LocalSgd& of, const Arrays& arrays, Nanos timeout) { return of.synchronize(arrays, timeout); });
}
mv_status mv_local_sgd_close(mv_local_sgd local) { return mv::capi::close<LocalSgd>("mv_local_sgd_close", local); }

mv_status mv_compressed_open(mv_group group, const char* how, mv_compressed* compressed) {
  return mv::capi::open_in_group("mv_compressed_open", group, compressed, [&](auto& node, auto& in, Strategy& strategy) -> Status {
    if (how == nullptr) return Status(MV_EINVAL, "how is NULL");
    auto made = Compressor::make(node, in, how);
    if (!made.ok()) return made.status();
    strategy.of = std::move(made).value();
    return {};
  });
}
mv_status mv_compressed_average(mv_compressed compressed, const mv_array* gradients, uint64_t count, const int64_t* rows, uint64_t row_count,
                                uint64_t* contributors, const mv_call_options* options) {
  return mv::capi::with_arrays<Compressor>("mv_compressed_average", compressed, gradients, count, options,
                                           [&](Compressor& of, const Arrays& arrays, Nanos timeout) -> Status {
                                             const auto shaped = mv::capi::matrices(arrays, rows, row_count);
                                             if (!shaped.ok()) return shaped.status();
                                             return of.average(shaped.value(), contributors, timeout);
                                           });
}
mv_status mv_compressed_finish(mv_compressed compressed, const mv_array* gradients, uint64_t count, const int64_t* rows, uint64_t row_count,
                               const mv_call_options* options) {
  return mv::capi::with_arrays<Compressor>("mv_compressed_finish", compressed, gradients, count, options,
                                           [&](Compressor& of, const Arrays& arrays, Nanos timeout) -> Status {
                                             const auto shaped = mv::capi::matrices(arrays, rows, row_count);
                                             if (!shaped.ok()) return shaped.status();
                                             return of.finish(shaped.value(), timeout);
                                           });
}
mv_status mv_compressed_close(mv_compressed compressed) { return mv::capi::close<Compressor>("mv_compressed_close", compressed); }
