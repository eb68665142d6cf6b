// Optimizers without a store: one update of a tensor, for callers that keep states and count.

#include <polyverso/kvstore.h>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "device/operations.hpp"
#include "device/tensors.hpp"
#include "options.hpp"
#include "shard/updater/apply.hpp"
#include "shard/updater/optimizer/traits.hpp"
#include "shard/updater/registry.hpp"
#include "tensor/device.hpp"
#include "tensor/sparse.hpp"
#include "tensor_calls.hpp"

namespace mv::capi {
namespace {

using shard::Updater;

constexpr const char* kStep = "kv_optimizer_step";
constexpr const char* kStates = "kv_optimizer_states";
constexpr const char* kRate = "kv_optimizer_rate";
constexpr uint32_t kFirstStepValues = 32;

struct Optimizer {
  shard::UpdaterSpec spec;
  std::unique_ptr<Updater> updater;
};

base::Result<Optimizer> make(const char* function, const char* text, mv_dtype dtype) {
  if (text == nullptr) return base::error(MV_EINVAL, "{}: optimizer is NULL", function);
  const auto wrong = [&](const base::Status& status) { return base::error(status.code(), "{}: {}", function, status.text()); };
  auto spec = shard::parse_updater(text);
  if (!spec.ok()) return wrong(spec.status());
  if (auto status = shard::check_updater(spec.value(), dtype); !status.ok()) return wrong(status);
  if (dtype != MV_F32 && dtype != MV_F64)
    return base::error(MV_EDTYPE, "{}: the value is {}: step a copy in f32 or f64, then copy the result back", function, tensor::dtype_name(dtype));
  std::unique_ptr<Updater> updater = shard::make_updater(spec.value(), dtype);
  if (updater->keeps_backups())
    return base::error(MV_EINVAL, "{}: {} needs the values that each worker last received; use it as a table's updater", function, spec.value().name);
  return Optimizer{std::move(spec).value(), std::move(updater)};
}

/// The checked operands of a step.
struct Work {
  Tensor value, gradient;
  std::vector<Tensor> states{};  ///< the updater's
  double* shared = nullptr;
  std::vector<std::pair<Tensor, Tensor>> copies{};  ///< of tensors of devices, which the step changes on the host

  /// A tensor that the step changes, or a copy of it in the host's memory.
  base::Result<Tensor> changed(const Tensor& tensor) {
    auto here = tensor::on_host(tensor);
    if (here.ok() && tensor::device_of(tensor) != nullptr) copies.emplace_back(tensor, here.value());
    return here;
  }
  base::Status copy_back() const {
    for (const auto& [tensor, here] : copies)
      if (auto status = tensor::copy_bytes(tensor, here.data, nullptr, here.stored_bytes()); !status.ok()) return status;
    return {};
  }
  /// The device that makes the step, since all tensors are there; null: the host does.
  device::TensorDevice* device(const shard::UpdaterSpec& spec) const {
    tensor::Device* const on = tensor::device_of(value);
    const bool are_there = std::ranges::all_of(states, [&](const Tensor& one) { return tensor::device_of(one) == on; });
    return are_there && device::has_formula(spec) ? static_cast<device::TensorDevice*>(on) : nullptr;
  }
  /// Copies everything to the host.
  base::Status move_to_host() {
    auto here = tensor::on_host(gradient);
    if (!here.ok()) return here.status();
    gradient = std::move(here).value();
    const auto move = [this](Tensor& tensor) -> base::Status {
      auto moved = changed(tensor);
      if (!moved.ok()) return moved.status();
      tensor = std::move(moved).value();
      return {};
    };
    if (auto status = move(value); !status.ok()) return status;
    for (Tensor& one : states)
      if (auto status = move(one); !status.ok()) return status;
    return {};
  }
};

base::Status check_gradient(State& state, const Updater& updater, Work& work) {
  if (work.gradient.shape != work.value.shape)
    return base::error(MV_ESHAPE, "{}: the gradient is {}, the value {}", kStep, work.gradient.text(), work.value.text());
  if (tensor::storage_dtype(work.gradient.dtype) != work.value.dtype)
    return base::error(MV_EDTYPE, "{}: the gradient is {}, the value {}", kStep, work.gradient.text(), work.value.text());
  if (!work.gradient.is_row_sparse() || (updater.is_lazy() && updater.sums() == 0)) return {};
  auto dense = tensor::to_dense(kStep, state.heap, work.gradient);
  if (!dense.ok()) return dense.status();
  work.gradient = std::move(dense).value();
  return {};
}

base::Status check_states(State& state, const Updater& updater, const kv_values& given, Work& work) {
  const size_t shared = updater.shared().size(), wanted = updater.states() + (shared > 0 ? 1 : 0);
  if (given.count != wanted || (wanted > 0 && given.tensors == nullptr))
    return base::error(MV_ESHAPE, "{}: {} states given, the optimizer has {}: see {}()", kStep, given.count, wanted, kStates);
  for (size_t i = 0; i < wanted; ++i) {
    auto pin = find_tensor(state, kStep, given.tensors[i]);
    if (!pin.ok()) return pin.status();
    const Tensor& tensor = *pin.value();
    const bool is_shared = i >= updater.states();
    const bool fits = !tensor.is_row_sparse() &&
                      (is_shared ? tensor.dtype == MV_F64 && tensor.shape.count() == shared
                                 : tensor.dtype == work.value.dtype && tensor.shape == work.value.shape);
    if (!fits) {
      const std::string other = is_shared ? fmt::format("f64 ({},)", shared) : work.value.text();
      return base::error(MV_ESHAPE, "{}: state {} is {}, not {}", kStep, i, tensor.text(), other);
    }
    if (!is_shared) {
      work.states.push_back(tensor);
      continue;
    }
    auto here = work.changed(tensor);
    if (!here.ok()) return here.status();
    work.shared = reinterpret_cast<double*>(here.value().data);
  }
  return {};
}

/// Updates elements `first` .. `first` + `count` - 1 of the value, with `count` gradient elements at `added`.
void apply(const Updater& updater, const shard::Step& step, const Work& work, size_t first, size_t count, const std::byte* added) {
  const size_t offset = first * tensor::dtype_bytes(work.value.dtype);
  std::array<std::byte*, shard::kMostStates> states{};
  for (size_t i = 0; i < work.states.size(); ++i) states[i] = work.states[i].data + offset;
  const shard::Block block = {.count = count, .values = work.value.data + offset, .states = states.data(), .step = &step, .first = first};
  shard::apply_added(updater, work.gradient.dtype, block, work.states.size(), added);
}

base::Status apply_on(device::TensorDevice& device, const shard::UpdaterSpec& spec, const shard::Step& step, const Work& work) {
  const bool by_rows = work.gradient.is_row_sparse();
  const size_t targets = by_rows ? work.gradient.held.count : 1, each = by_rows ? work.value.shape.row_count() : work.value.shape.count();
  const size_t bytes = each * tensor::dtype_bytes(work.value.dtype), gradient_bytes = each * tensor::dtype_bytes(work.gradient.dtype);
  std::vector<void*> states;
  states.reserve(targets * work.states.size());
  std::vector<device::Target> all;
  all.reserve(targets);
  for (size_t i = 0; i < targets; ++i) {
    const size_t row = by_rows ? static_cast<size_t>(work.gradient.held.ids[i]) : 0;
    for (const Tensor& one : work.states) states.push_back(one.data + row * bytes);
    all.push_back({.values = work.value.data + row * bytes,
                   .gradient = work.gradient.data + i * gradient_bytes,
                   .states = std::span(states).last(work.states.size()),
                   .count = each,
                   .first = row * each,
                   .step = step});
  }
  const auto status = device::update(device.current(), spec, work.value.dtype, work.gradient.dtype, all);
  return status.ok() ? status : base::error(status.code(), "{}: {}", kStep, status.text());
}

void apply_all(const Updater& updater, const shard::Step& step, const Work& work) {
  if (!work.gradient.is_row_sparse()) return apply(updater, step, work, 0, work.value.shape.count(), work.gradient.data);
  const size_t row = work.value.shape.row_count(), bytes = row * tensor::dtype_bytes(work.gradient.dtype);
  for (size_t i = 0; i < work.gradient.held.count; ++i)
    apply(updater, step, work, static_cast<size_t>(work.gradient.held.ids[i]) * row, row, work.gradient.data + i * bytes);
}

base::Status step(State& state, const char* text, uint64_t count, uint64_t before, mv_tensor value, mv_tensor gradient,
                  const kv_values* states) {
  if (count == 0) return base::error(MV_EINVAL, "{}: count is 0; a tensor's first update has count 1", kStep);
  auto target = find_tensor(state, kStep, value);
  if (!target.ok()) return target.status();
  auto source = find_tensor(state, kStep, gradient);
  if (!source.ok()) return source.status();
  Work work{.value = *target.value(), .gradient = *source.value()};
  if (auto status = tensor::same_place(kStep, work.value, work.gradient); !status.ok()) return status;
  if (work.value.is_row_sparse()) {  // a dense copy is updated, and its rows become the new value
    auto dense = tensor::to_dense(kStep, state.heap, work.value);
    if (!dense.ok()) return dense.status();
    work.value = std::move(dense).value();
  }
  const Tensor updated = work.value;
  const auto optimizer = make(kStep, text, work.value.dtype);
  if (!optimizer.ok()) return optimizer.status();
  const Updater& updater = *optimizer.value().updater;
  kv_values given = KV_VALUES_INIT;
  if (states != nullptr) {
    const auto read = read_struct(kStep, "kv_values", states, given, kFirstStepValues);
    if (!read.ok()) return read.status();
    given = read.value();
  }
  if (auto status = check_gradient(state, updater, work); !status.ok()) return status;
  if (auto status = check_states(state, updater, given, work); !status.ok()) return status;
  device::TensorDevice* const device = work.device(optimizer.value().spec);
  if (device == nullptr)
    if (auto status = work.move_to_host(); !status.ok()) return status;
  const auto fresh = updater.shared();
  if (before == 0) std::copy(fresh.begin(), fresh.end(), work.shared);
  const shard::Turn turn = {.count = count, .latest = std::max(count, before), .before = before};
  const std::span<double> shared(work.shared, fresh.size());
  updater.advance(turn, shared);
  if (device == nullptr)
    apply_all(updater, updater.step(turn, shared), work);
  else if (auto status = apply_on(*device, optimizer.value().spec, updater.step(turn, shared), work); !status.ok())
    return status;
  if (auto status = work.copy_back(); !status.ok()) return status;
  if (!target.value()->is_row_sparse()) return {};
  auto rows = tensor::to_sparse(kStep, state.heap, updated);
  if (!rows.ok()) return rows.status();
  target.value().pin()->replace(std::move(rows).value());
  return {};
}

base::Status tell_states(const char* optimizer, int64_t* states, int64_t* shared) {
  if (states == nullptr || shared == nullptr) return base::error(MV_EINVAL, "{}: states or shared is NULL", kStates);
  const auto updater = make(kStates, optimizer, MV_F32);
  if (!updater.ok()) return updater.status();
  *states = static_cast<int64_t>(updater.value().updater->states());
  *shared = static_cast<int64_t>(updater.value().updater->shared().size());
  return {};
}

base::Status tell_rate(const char* optimizer, uint64_t updates, double* rate) {
  if (optimizer == nullptr || rate == nullptr) return base::error(MV_EINVAL, "{}: optimizer or value is NULL", kRate);
  const auto spec = shard::parse_updater(optimizer);
  if (!spec.ok()) return base::error(spec.status().code(), "{}: {}", kRate, spec.status().text());
  const shard::Kind& kind = *shard::find_kind(spec.value().name);
  if (kind.optimizer == nullptr) return base::error(MV_EINVAL, "{}: {} has no schedule; MXNet's optimizers have one: \"mx.{}\"", kRate, kind.name, kind.name);
  *rate = shard::optimizer::scheduled_rate(shard::optimizer::view(kind, spec.value().parameters), updates);
  return {};
}

}  // namespace
}  // namespace mv::capi

mv_status kv_optimizer_rate(const char* optimizer, uint64_t updates, double* value) {
  return mv::capi::guarded(mv::capi::kRate, [&] { return mv::capi::tell_rate(optimizer, updates, value); });
}
mv_status kv_optimizer_states(const char* optimizer, int64_t* states, int64_t* shared) {
  return mv::capi::guarded(mv::capi::kStates, [&] { return mv::capi::tell_states(optimizer, states, shared); });
}
mv_status kv_optimizer_step(const char* optimizer, uint64_t count, uint64_t before, mv_tensor value, mv_tensor gradient,
                            const kv_values* states) {
  return mv::capi::tensor_boundary(mv::capi::kStep, [&](mv::capi::State& state) {
    return mv::capi::step(state, optimizer, count, before, value, gradient, states);
  });
}
