// The C interface of key-value stores: checks handles, keys and values. kvstore::Store does the work.

#include <polyverso/kvstore.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "boundary.hpp"
#include "calls.hpp"
#include "options.hpp"
#include "shard/updater/updater.hpp"
#include "state.hpp"
#include "tensor/device.hpp"
#include "tensor_calls.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

using kvstore::Keys;
using kvstore::Sparse;
using kvstore::Store;
using tensor::Tensor;

constexpr uint32_t kFirstKeys = 32, kFirstValues = 32;
constexpr size_t kLongestKey = 200;

/// The node of stores of this process alone: created for the first of them, and kept.
base::Result<NodeRef> local_node(State& state) {
  std::lock_guard lock(state.local);
  if (auto pin = state.nodes.pin(state.local_node)) return *pin;
  auto opened = open_node(state, runtime::Settings(), {}, false);
  if (!opened.ok()) return opened.status();
  state.local_node = opened.value();
  return *state.nodes.pin(state.local_node);
}

base::Result<kvstore::Type> read_type(const char* type) {
  if (type == nullptr) return base::error(MV_EINVAL, "type is NULL");
  const char* const van = std::getenv("DMLC_PS_VAN_TYPE");  // MXNet's way to request p3
  auto known = kvstore::parse_type(type, van != nullptr ? van : "");
  if (!known.ok()) return known;
  const char* const bound = std::getenv("MXNET_KVSTORE_BIGARRAY_BOUND");
  const auto spread_from = kvstore::parse_spread_from(bound != nullptr ? bound : "");
  if (!spread_from.ok()) return spread_from.status();
  known.value().spread_from = spread_from.value();
  return known;
}

base::Status create(State& state, mv_node node, kvstore::Type type, kv_store* store) {
  NodeRef entry;
  if (type.dist) {
    auto pin = find_working_node(state, "kv_create", node);
    if (!pin.ok()) return pin.status();
    entry = *pin.value();
    if (entry->node->identity().worker_id < 0)
      return base::error(MV_ESTATE, "kv_create: this process is only a server; only workers push and pull");
  } else {
    auto local = local_node(state);
    if (!local.ok()) return local.status();
    entry = std::move(local).value();
  }
  const std::string prefix = fmt::format("kv-{}/", entry->stores.fetch_add(1));
  auto made = std::make_shared<Store>(*entry->node, state.heap, std::move(type), prefix);
  *store = state.stores.insert({std::move(entry), std::move(made)});
  return {};
}

/// A store of this process alone may be a forked child's first call.
mv_status create_store(mv_node node, const char* type, kv_store* store) {
  constexpr const char* kFunction = "kv_create";
  kvstore::Type known;
  const mv_status checked = guarded(kFunction, [&]() -> base::Status {
    if (store == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the handle is NULL", kFunction);
    auto read = read_type(type);
    if (read.ok()) known = std::move(read).value();
    return named(kFunction, read.status());
  });
  if (checked != MV_OK) return checked;
  const auto body = [&](State& state) { return create(state, node, std::move(known), store); };
  return known.dist ? boundary(kFunction, body) : guarded(kFunction, [&] { return body(current_state_for_init()); });
}

base::Status free_store(State& state, kv_store handle) {
  auto pin = find_store(state, "kv_free", handle, Broken::kFound);
  if (!pin.ok()) return pin.status();
  kvstore::Updates& updates = pin.value()->store->updates();
  if (auto inside = updates.check_outside(); !inside.ok()) return named("kv_free", inside);
  updates.run_due();
  return state.stores.close(pin.value()) ? base::Status() : not_a(state, "kv_free", HandleKind::kStore, handle);
}

base::Status tell_type(State& state, kv_store handle, char* text, uint64_t capacity, uint64_t* length) {
  if (auto status = check_text_out("kv_type", text, capacity, length); !status.ok()) return status;
  auto pin = find_store(state, "kv_type", handle);
  if (!pin.ok()) return pin.status();
  put_text(pin.value()->store->type().name, text, capacity, length);
  return {};
}

base::Status check_key(const char* function, std::string_view key) {
  const bool fits = !key.empty() && key.size() <= kLongestKey;
  if (fits && std::ranges::all_of(key, [](char letter) { return letter >= 0x20 && letter < 0x7f; })) return {};
  const bool is_utf8 = base::utf8_end(key) == key.size();
  if (fits && is_utf8 && std::ranges::none_of(key, [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }))
    return {};
  return base::error(MV_EINVAL, "{}: a key of {} bytes{}; a name has 1 to {} bytes of UTF-8 and no control characters", function, key.size(),
                     !fits ? "" : is_utf8 ? " with control characters" : " that are not UTF-8", kLongestKey);
}

base::Status read_keys(const char* function, const kv_keys* given, Keys* keys) {
  if (given == nullptr) return base::error(MV_EINVAL, "{}: keys is NULL", function);
  auto read = read_struct(function, "kv_keys", given, kv_keys KV_KEYS_INIT, kFirstKeys);
  if (!read.ok()) return read.status();
  const kv_keys& from = read.value();
  if (from.count == 0) return {};
  if ((from.numbers == nullptr) == (from.names == nullptr))
    return base::error(MV_EINVAL, "{}: keys are numbers or names: set exactly one of the two pointers of kv_keys", function);
  keys->are_numbers = from.numbers != nullptr;
  keys->names.reserve(from.count);
  for (uint64_t i = 0; i < from.count; ++i) {
    if (from.numbers != nullptr) {
      keys->names.push_back(std::to_string(from.numbers[i]));
      continue;
    }
    if (from.names[i] == nullptr) return base::error(MV_EINVAL, "{}: key {} is NULL", function, i);
    if (auto status = check_key(function, from.names[i]); !status.ok()) return status;
    keys->names.emplace_back(from.names[i]);
  }
  return {};
}

/// The tensors of one call, by key. They share the memory of those behind the handles, and keep it alive.
struct Given {
  std::vector<Tensor> tensors;
  kvstore::Values by_key;
  std::shared_ptr<std::vector<TensorTable::Pin>> open = std::make_shared<std::vector<TensorTable::Pin>>();  ///< the
                                                                                                            ///< tensors
                                                                                                            ///< behind
                                                                                                            ///< the
                                                                                                            ///< handles
  int64_t priority = 0;
};

/// The tensor of an open handle, which stays open meanwhile, so the memory's use count need not change.
Tensor borrowed(const OpenTensor& open) {
  if (open.is_row_sparse()) return open.now();
  const Tensor& from = open.dense();
  Tensor tensor;
  tensor.dtype = from.dtype;
  tensor.shape = from.shape;
  tensor.block = std::shared_ptr<tensor::Block>(std::shared_ptr<void>(), from.block.get());
  tensor.data = from.data;
  tensor.is_view = from.is_view;
  return tensor;
}

/// Whether a call reads the values in the host's memory, where those of devices are copied; takes them where they are; or fills them.
enum class Use { kRead, kTaken, kFilled };

base::Status read_values(State& state, const char* function, const Keys& keys, const kv_values* given, Use use, Given* values) {
  if (given == nullptr) return base::error(MV_EINVAL, "{}: values is NULL", function);
  auto read = read_struct(function, "kv_values", given, kv_values KV_VALUES_INIT, kFirstValues);
  if (!read.ok()) return read.status();
  const kv_values& from = read.value();
  const size_t count = keys.names.size();
  values->priority = from.priority;
  if (from.tensors == nullptr && from.count != 0) return base::error(MV_EINVAL, "{}: values.tensors is NULL, but count is {}", function, from.count);
  values->tensors.reserve(from.count);
  values->open->reserve(from.count);
  values->by_key.reserve(count);
  for (uint64_t i = 0; i < from.count; ++i) {
    auto pin = state.tensors.pin(from.tensors[i]);
    if (!pin) return not_a(state, function, HandleKind::kTensor, from.tensors[i]);
    auto value = use == Use::kRead ? tensor::on_host(borrowed(*pin)) : base::Result<Tensor>(borrowed(*pin));
    if (!value.ok()) return value.status();
    values->tensors.push_back(std::move(value).value());
    values->open->push_back(std::move(pin));
  }
  const char* const what = use == Use::kRead ? "row_ids" : use == Use::kFilled ? "tensors to fill" : "values";
  uint64_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t some = from.per_key != nullptr ? from.per_key[i] : from.count / count;
    if (some == 0 || some > from.count - first)
      return base::error(MV_ESHAPE, "{}: {} {} for {} keys{}", function, from.count, what, count,
                         from.per_key != nullptr ? fmt::format("; key \"{}\" has {}", keys.names[i], some) : ": each key needs at least one");
    values->by_key.emplace_back(values->tensors.data() + first, some);
    first += some;
  }
  if (first != from.count) return base::error(MV_ESHAPE, "{}: {} {} for {} keys", function, from.count, what, count);
  return {};
}

/// The options of a call that is blocking, or never waits for an answer.
base::Result<api::CallOptions> read_options(const char* function, const mv_call_options* options, MayForget may_forget) {
  CallPlan plan;
  if (auto status = plan_call(function, options, may_forget, &plan); !status.ok()) return status;
  if (plan.options.mode == api::Mode::kAsync) return base::error(MV_EINVAL, "{}: MV_ASYNC is not supported: a push is always asynchronous", function);
  return plan.options;
}

/// Runs work(Store&, timeout) of an exported function, whose name begins the error message.
template <typename Work>
mv_status with_store(const char* function, kv_store store, const mv_call_options* options, Work work) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_store(state, function, store);
    if (!pin.ok()) return pin.status();
    const auto plan = read_options(function, options, MayForget::kNo);
    if (!plan.ok()) return plan.status();
    return named(function, work(*pin.value()->store, plan.value().timeout));
  });
}

mv_status tell(const char* function, kv_store store, int64_t* out, int64_t (Store::*read)() const) {
  return with_store(function, store, nullptr, [&](const Store& known, base::Nanos) -> base::Status {
    if (out == nullptr) return base::Status(MV_EINVAL, "the pointer for the result is NULL");
    *out = (known.*read)();
    return {};
  });
}

/// The checked keys and values of a call.
struct Checked {
  Keys keys;
  Given values;
  base::Nanos timeout{0};
  kvstore::Updates::Wait wait = kvstore::Updates::Wait::kForOutcome;
};

/// Runs work(Store&, Checked) of an exported function.
template <typename Work>
mv_status with_values(const char* function, kv_store store, const kv_keys* keys, const kv_values* values, const mv_call_options* options,
                      Work work, MayForget may_forget = MayForget::kNo) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_store(state, function, store);
    if (!pin.ok()) return pin.status();
    const auto plan = read_options(function, options, may_forget);
    if (!plan.ok()) return plan.status();
    Checked call;
    call.timeout = plan.value().timeout;
    if (plan.value().mode == api::Mode::kOneWay) call.wait = kvstore::Updates::Wait::kNo;
    if (auto status = read_keys(function, keys, &call.keys); !status.ok()) return status;
    if (auto status = read_values(state, function, call.keys, values, Use::kTaken, &call.values); !status.ok()) return status;
    return named(function, work(*pin.value()->store, call));
  });
}

base::Status init(Store& store, const Checked& call) { return store.init(call.keys, call.values.by_key); }
base::Status push(Store& store, const Checked& call) {
  return store.push(call.keys, call.values.by_key, {call.timeout, call.values.priority, call.wait});
}

/// The arguments of a call that pulls: its keys, the values that are pushed before or name the rows, if any, and the
/// tensors to fill.
struct Pulling {
  Keys keys;
  Given values;
  kvstore::Outs outs;
  Sparse sparse = Sparse::kIgnored;
};

/// plan_call() of a call that accepts KV_SPARSE_TOO.
base::Status plan_pull(const char* function, const mv_call_options* given, CallPlan* plan, Sparse* sparse) {
  if (given == nullptr) return {};
  auto read = read_struct(function, "mv_call_options", given, mv_call_options MV_CALL_OPTIONS_INIT, kFirstCallOptions);
  if (!read.ok()) return read.status();
  mv_call_options plain = read.value();
  plain.size = sizeof(plain);
  *sparse = (plain.flags & KV_SPARSE_TOO) != 0 ? Sparse::kFilled : Sparse::kIgnored;
  plain.flags &= ~uint32_t{KV_SPARSE_TOO};
  return plan_call(function, &plain, MayForget::kNo, plan);
}

/// Runs begin(Store&, Pulling, api::CallOptions) -> Started of an exported function. `values` may be NULL.
template <typename Begin>
mv_status with_pull(const char* function, kv_store store, const kv_keys* keys, const kv_values* values, const kv_values* out,
                    const mv_call_options* options, Begin begin, Use use = Use::kRead) {
  return boundary(function, [&](State& state) -> base::Status {
    auto pin = find_store(state, function, store);
    if (!pin.ok()) return pin.status();
    CallPlan plan;
    Pulling call;
    if (auto status = plan_pull(function, options, &plan, &call.sparse); !status.ok()) return status;
    if (auto status = read_keys(function, keys, &call.keys); !status.ok()) return status;
    if (values != nullptr)
      if (auto status = read_values(state, function, call.keys, values, use, &call.values); !status.ok()) return status;
    Given given;
    if (auto status = read_values(state, function, call.keys, out, Use::kFilled, &given); !status.ok()) return status;
    call.outs = {given.by_key, [open = given.open, &heap = state.heap](size_t place, const Tensor& made) {
                   OpenTensor& out = *(*open)[place];
                   const Tensor now = out.now();
                   auto moved = tensor::device_of(now) != tensor::device_of(made) ? tensor::move_to(tensor::home_of(now, heap), made) : base::Result<Tensor>(made);
                   if (!moved.ok()) return moved.status();
                   out.replace(std::move(moved).value());
                   return base::Status();
                 }};
    plan.options.priority = given.priority;
    const base::Status status = run_call(state, pin.value()->node, plan,
                                         [&](const api::CallOptions& how) { return begin(*pin.value()->store, call, how); });
    return status.ok() ? status : base::error(status.code(), "{}: {}", function, status.text());
  });
}

api::Started pull(Store& store, const Pulling& call, const api::CallOptions& how) { return store.pull(call.keys, call.outs, call.sparse, how); }

}  // namespace
}  // namespace mv::capi

using mv::capi::Checked;
using mv::capi::Pulling;
using mv::capi::State;
using mv::kvstore::Store;

mv_status kv_create(mv_node node, const char* type, kv_store* store) {
  return mv::capi::create_store(node, type, store);
}
mv_status kv_free(kv_store store) {
  return mv::capi::boundary("kv_free", [&](State& state) { return mv::capi::free_store(state, store); });
}
mv_status kv_type(kv_store store, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::boundary("kv_type", [&](State& state) { return mv::capi::tell_type(state, store, text, capacity, length); });
}
mv_status kv_rank(kv_store store, int64_t* rank) { return mv::capi::tell("kv_rank", store, rank, &Store::rank); }
mv_status kv_num_workers(kv_store store, int64_t* num_workers) {
  return mv::capi::tell("kv_num_workers", store, num_workers, &Store::num_workers);
}

mv_status kv_init(kv_store store, const kv_keys* keys, const kv_values* values) {
  return mv::capi::with_values("kv_init", store, keys, values, nullptr, mv::capi::init);
}
mv_status kv_push(kv_store store, const kv_keys* keys, const kv_values* values, const mv_call_options* options) {
  return mv::capi::with_values("kv_push", store, keys, values, options, mv::capi::push, mv::capi::MayForget::kYes);
}
mv_status kv_pull(kv_store store, const kv_keys* keys, const kv_values* values, const mv_call_options* options) {
  return mv::capi::with_pull("kv_pull", store, keys, nullptr, values, options, mv::capi::pull);
}
mv_status kv_row_sparse_pull(kv_store store, const kv_keys* keys, const kv_values* out, const kv_values* row_ids, const mv_call_options* options) {
  return mv::capi::with_pull("kv_row_sparse_pull", store, keys, row_ids, out, options,
                             [&](Store& known, const Pulling& call, const mv::api::CallOptions& how) -> mv::api::Started {
                               if (row_ids == nullptr) return {mv::base::Status(MV_EINVAL, "row_ids is NULL"), nullptr};
                               return known.row_sparse_pull(call.keys, call.outs, call.values.by_key, how);
                             });
}
mv_status kv_pushpull(kv_store store, const kv_keys* keys, const kv_values* values, const kv_values* out, const mv_call_options* options) {
  return mv::capi::with_pull("kv_pushpull", store, keys, values, out != nullptr ? out : values, options,
                             [](Store& known, const Pulling& call, const mv::api::CallOptions& how) -> mv::api::Started {
                               if (known.updates().is_manual_here())
                                 return {mv::base::Status(MV_ESTATE, "this thread runs updates manually: call kv_push(), then kv_next_update() until none waits, then kv_pull()"), nullptr};
                               auto status = known.push(call.keys, call.values.by_key, {how.timeout, call.values.priority});
                               return status.ok() ? mv::capi::pull(known, call, how) : mv::api::Started{std::move(status), nullptr};
                             },
                             mv::capi::Use::kTaken);
}
mv_status kv_broadcast(kv_store store, const kv_keys* keys, const kv_values* values, const kv_values* out) {
  return mv::capi::with_pull("kv_broadcast", store, keys, values, out != nullptr ? out : values, nullptr,
                             [](Store& known, const Pulling& call, const mv::api::CallOptions& how) -> mv::api::Started {
                               auto status = known.init(call.keys, call.values.by_key);
                               return status.ok() ? mv::capi::pull(known, call, how) : mv::api::Started{std::move(status), nullptr};
                             },
                             mv::capi::Use::kTaken);
}
mv_status kv_set_reject_nonfinite(kv_store store, int32_t on) {
  return mv::capi::with_store("kv_set_reject_nonfinite", store, nullptr, [&](Store& known, mv::base::Nanos) -> mv::base::Status {
    known.reject_nonfinite(on != 0);
    return {};
  });
}

mv_status kv_set_optimizer(kv_store store, const char* optimizer) {
  return mv::capi::with_store("kv_set_optimizer", store, nullptr, [&](Store& known, mv::base::Nanos) -> mv::base::Status {
    if (optimizer == nullptr) return mv::base::Status(MV_EINVAL, "optimizer is NULL; use \"assign\" for none");
    const auto spec = mv::shard::parse_updater(optimizer);
    return spec.ok() ? known.set_optimizer(spec.value()) : spec.status();
  });
}
mv_status kv_set_gradient_compression(kv_store store, const char* codec) {
  return mv::capi::with_store("kv_set_gradient_compression", store, nullptr, [&](Store& known, mv::base::Nanos) -> mv::base::Status {
    if (codec == nullptr) return mv::base::Status(MV_EINVAL, "codec is NULL; \"none\" switches compression off");
    auto compression = mv::kvstore::parse_compression(codec);
    return compression.ok() ? known.set_compression(std::move(compression).value()) : compression.status();
  });
}
mv_status kv_set_key_parameters(kv_store store, const kv_keys* keys, const char* parameters) {
  return mv::capi::with_store("kv_set_key_parameters", store, nullptr, [&](Store& known, mv::base::Nanos) -> mv::base::Status {
    mv::kvstore::Keys read;
    if (auto status = mv::capi::read_keys("kv_set_key_parameters", keys, &read); !status.ok()) return status;
    if (parameters == nullptr) return mv::base::Status(MV_EINVAL, "parameters is NULL; \"\" clears them");
    return known.set_key_parameters(read, parameters);
  });
}
mv_status kv_save_optimizer_states(kv_store store, const char* path, uint32_t flags) {
  return mv::capi::with_store("kv_save_optimizer_states", store, nullptr, [&](Store& known, mv::base::Nanos) -> mv::base::Status {
    if (path == nullptr) return mv::base::Status(MV_EINVAL, "path is NULL");
    if ((flags & ~uint32_t{KV_DUMP_OPTIMIZER}) != 0) return mv::base::error(MV_EINVAL, "flags {:#x}: some bits are not in kv_save_flag", flags);
    return known.save_states(path, (flags & KV_DUMP_OPTIMIZER) != 0);
  });
}
mv_status kv_load_optimizer_states(kv_store store, const char* path) {
  return mv::capi::with_store("kv_load_optimizer_states", store, nullptr, [&](Store& known, mv::base::Nanos) -> mv::base::Status {
    return path != nullptr ? known.load_states(path) : mv::base::Status(MV_EINVAL, "path is NULL");
  });
}
mv_status kv_barrier(kv_store store, const mv_call_options* options) {
  return mv::capi::with_store("kv_barrier", store, options,
                              [](Store& known, mv::base::Nanos timeout) { return known.barrier(timeout); });
}
mv_status kv_leave(kv_store store) {
  return mv::capi::with_store("kv_leave", store, nullptr, [](Store& known, mv::base::Nanos) { return known.leave(); });
}
