/// Key-value stores, and optimizers without a store. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_KVSTORE_HPP
#define POLYVERSO_CPP_KVSTORE_HPP

#include <polyverso/cpp/node.hpp>
#include <polyverso/cpp/tensor.hpp>

namespace polyverso {

/// The keys of one call, all numbers or all names: 3, "weights", {1, 2}, {"weights", "bias"}.
class Keys {
 public:
  template <std::integral T>
  Keys(T number) : numbers_{static_cast<std::int64_t>(number)} {}
  Keys(const char* name) : names_{name} {}
  Keys(std::string name) : names_{std::move(name)} {}
  Keys(std::initializer_list<std::int64_t> numbers) : numbers_(numbers) {}
  Keys(std::initializer_list<const char*> names) : names_(names.begin(), names.end()) {}
  Keys(std::vector<std::int64_t> numbers) : numbers_(std::move(numbers)) {}
  Keys(std::vector<std::string> names) : names_(std::move(names)) {}

  /// For C functions, valid while this object lives and is not changed.
  kv_keys get() const {
    kv_keys keys = KV_KEYS_INIT;
    pointers_.clear();
    for (const std::string& name : names_) pointers_.push_back(name.c_str());
    keys.count = names_.empty() ? numbers_.size() : names_.size();
    keys.numbers = names_.empty() ? numbers_.data() : nullptr;
    keys.names = names_.empty() ? nullptr : pointers_.data();
    return keys;
  }

 private:
  std::vector<std::int64_t> numbers_;
  std::vector<std::string> names_;
  mutable std::vector<const char*> pointers_;
};

/// The tensors of one call, key after key: one tensor, {first, second}, or a vector of tensors.
class Tensors {
 public:
  Tensors() = default;
  Tensors(const Tensor& tensor) : ids_{tensor.id()} {}
  Tensors(std::initializer_list<std::reference_wrapper<const Tensor>> tensors) {
    for (const Tensor& tensor : tensors) ids_.push_back(tensor.id());
  }
  Tensors(std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors) ids_.push_back(tensor.id());
  }
  Tensors(const std::vector<Tensor>& tensors) : Tensors(std::span<const Tensor>(tensors)) {}
  /// How many tensors each key has; otherwise all have equally many.
  Tensors&& per_key(std::vector<std::uint64_t> counts) && {
    per_key_ = std::move(counts);
    return std::move(*this);
  }
  /// Requests of a higher priority are sent first.
  Tensors&& priority(std::int64_t priority) && {
    priority_ = priority;
    return std::move(*this);
  }

  /// For C functions, valid while this object lives and is not changed.
  kv_values get() const {
    kv_values values = KV_VALUES_INIT;
    values.count = ids_.size();
    values.tensors = ids_.data();
    values.per_key = per_key_.empty() ? nullptr : per_key_.data();
    values.priority = priority_;
    return values;
  }

 private:
  std::vector<mv_tensor> ids_;
  std::vector<std::uint64_t> per_key_;
  std::int64_t priority_ = 0;
};

/// A key-value store in the style of MXNet's. The destructor closes the handle; the keys of a dist store stay on the servers.
class Store {
 public:
  /// Store store(node, "dist_sync"); workers create their stores in the same order.
  Store(const Node& node, const std::string& type) : handle_(detail::value<kv_store>(kv_create, node.id(), type.c_str())) {}

  kv_store id() const noexcept { return handle_.id(); }
  void close() { handle_.close(); }
  std::string type() const {
    return detail::text([&](auto... out) { return kv_type(id(), out...); });
  }
  std::int64_t rank() const { return detail::value<std::int64_t>(kv_rank, id()); }
  std::int64_t num_workers() const { return detail::value<std::int64_t>(kv_num_workers, id()); }

  /// Creates keys; worker 0's values are used.
  void init(const Keys& keys, const Tensors& values) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    check(kv_init(id(), &k, &v));
  }
  void push(const Keys& keys, const Tensors& values, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    detail::block(call, [&](auto* options) { return kv_push(id(), &k, &v, options); });
  }
  void pull(const Keys& keys, const Tensors& values, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    detail::block(call, [&](auto* options) { return kv_pull(id(), &k, &v, options); });
  }
  /// The tensors must not be used before the request has ended.
  Request pull_async(const Keys& keys, const Tensors& values, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    return detail::start(call, [&](auto* options) { return kv_pull(id(), &k, &v, options); });
  }
  void row_sparse_pull(const Keys& keys, const Tensors& values, const Tensors& row_ids, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    const kv_values rows = row_ids.get();
    detail::block(call, [&](auto* options) { return kv_row_sparse_pull(id(), &k, &v, &rows, options); });
  }
  Request row_sparse_pull_async(const Keys& keys, const Tensors& values, const Tensors& row_ids, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    const kv_values rows = row_ids.get();
    return detail::start(call, [&](auto* options) { return kv_row_sparse_pull(id(), &k, &v, &rows, options); });
  }
  /// push(), then pull(); without `out` into the values.
  void pushpull(const Keys& keys, const Tensors& values, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    detail::block(call, [&](auto* options) { return kv_pushpull(id(), &k, &v, nullptr, options); });
  }
  void pushpull(const Keys& keys, const Tensors& values, const Tensors& out, const Call& call = {}) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    const kv_values o = out.get();
    detail::block(call, [&](auto* options) { return kv_pushpull(id(), &k, &v, &o, options); });
  }
  /// init(), then pull(); without `out` into the values.
  void broadcast(const Keys& keys, const Tensors& values) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    check(kv_broadcast(id(), &k, &v, nullptr));
  }
  void broadcast(const Keys& keys, const Tensors& values, const Tensors& out) const {
    const kv_keys k = keys.get();
    const kv_values v = values.get();
    const kv_values o = out.get();
    check(kv_broadcast(id(), &k, &v, &o));
  }

  void set_reject_nonfinite(bool on) const { check(kv_set_reject_nonfinite(id(), static_cast<std::int32_t>(on))); }
  /// "sgd rate=0.1"; one worker calls it.
  void set_optimizer(const std::string& optimizer) const { check(kv_set_optimizer(id(), optimizer.c_str())); }
  void set_gradient_compression(const std::string& codec) const { check(kv_set_gradient_compression(id(), codec.c_str())); }
  void set_key_parameters(const Keys& keys, const std::string& parameters) const {
    const kv_keys k = keys.get();
    check(kv_set_key_parameters(id(), &k, parameters.c_str()));
  }
  void save_optimizer_states(const std::string& path, std::uint32_t flags = 0) const {
    check(kv_save_optimizer_states(id(), path.c_str(), flags));
  }
  void load_optimizer_states(const std::string& path) const { check(kv_load_optimizer_states(id(), path.c_str())); }

  /// Changes `stored` in place, for a push in a store of one process; an exception becomes the push's error. It runs on this thread only.
  using Updater = std::function<void(const char* key, const Tensor& merged, const Tensor& stored)>;
  /// Empty: pushes replace values again, or go through the last optimizer.
  void set_updater(Updater updater) {
    auto next = std::make_unique<Updater>(std::move(updater));
    check(*next ? kv_set_updater(id(), &run_updater, next.get()) : kv_set_updater(id(), nullptr, nullptr));
    updater_ = std::move(next);
  }
  void barrier(const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return kv_barrier(id(), options); });
  }
  Request barrier_async(const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return kv_barrier(id(), options); });
  }
  /// Runs the controller of every server: Node::set_controller().
  void send_command(std::int64_t head, const std::string& body, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return kv_send_command(id(), head, body.c_str(), options); });
  }
  Request send_command_async(std::int64_t head, const std::string& body, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return kv_send_command(id(), head, body.c_str(), options); });
  }
  /// This worker stops pushing.
  void leave() const { check(kv_leave(id())); }

 private:
  static mv_status run_updater(void* user, const char* key, mv_tensor merged, mv_tensor stored) noexcept {
    // The library owns the tensors: the handles are given back, whatever the updater does.
    Tensor m(merged);
    Tensor s(stored);
    const mv_status status = detail::callback([&] { (*static_cast<Updater*>(user))(key, m, s); });
    m.release();
    s.release();
    return status;
  }

  std::unique_ptr<Updater> updater_;  // outlives the handle, whose close may still call it
  detail::Handle<kv_free> handle_;
};

/// Optimizers of tensors that the program keeps itself.
struct OptimizerStates {
  std::int64_t states;  ///< tensors of the value's dtype and shape, initially zeros
  std::int64_t shared;  ///< elements of one more MV_F64 tensor, which all tensors share; 0: none
};
inline OptimizerStates optimizer_states(const std::string& optimizer) {
  OptimizerStates result{};
  check(kv_optimizer_states(optimizer.c_str(), &result.states, &result.shared));
  return result;
}
/// One update of `value`: its `count`-th, from 1; `before`: of the most updated tensor so far. See kv_optimizer_step().
inline void optimizer_step(const std::string& optimizer, std::uint64_t count, std::uint64_t before, const Tensor& value, const Tensor& gradient,
                           const Tensors& states = {}) {
  const kv_values s = states.get();
  check(kv_optimizer_step(optimizer.c_str(), count, before, value.id(), gradient.id(), &s));
}
inline double optimizer_rate(const std::string& optimizer, std::uint64_t updates) {
  return detail::value<double>(kv_optimizer_rate, optimizer.c_str(), updates);
}
/// States as a safetensors file in memory, and back.
inline Tensor encode_states(const std::string& format, const std::string& about, const Tensors& states) {
  const kv_values s = states.get();
  return Tensor(detail::value<mv_tensor>(kv_encode_states, format.c_str(), about.c_str(), &s));
}
struct DecodedStates {
  std::string about;
  std::vector<Tensor> tensors;
};
inline DecodedStates decode_states(const std::string& format, const In& file) {
  const char* about = nullptr;
  const mv_tensor* tensors = nullptr;
  std::uint64_t count = 0;
  check(kv_decode_states(format.c_str(), file.data, file.count, file.dtype, &about, &tensors, &count));
  DecodedStates result;
  result.tensors.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) result.tensors.emplace_back(tensors[i]);
  result.about = about;
  return result;
}

}  // namespace polyverso

#endif
