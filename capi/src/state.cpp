#include "state.hpp"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "base/log.hpp"
#include "base/shared_memory.hpp"
#include "base/standard_descriptors.hpp"
#include "device/known_block.hpp"
#include "transport/inproc/inproc.hpp"

namespace mv::capi {

TensorSpace& tensor_space() {
  static auto* const kSpace = [] {
    auto* const made = new TensorSpace;  // never destroyed, like the first life
    shard::DeviceShards::use(made->table_devices);
    return made;
  }();
  return *kSpace;
}

namespace {

// Never destroyed: threads may still call while the process ends.
alignas(State) std::byte first_life[sizeof(State)];

std::atomic<State*> life{nullptr};       // null before the first use, and in a forked child until its mv_init()
std::atomic<State*> next_life{nullptr};  // in a forked child that has not called mv_init()
std::atomic<State*> last_life{nullptr};  // in a forked child: the parent's, kept reachable
std::atomic<bool> forked{false};

State* make_first() {
  base::fill_standard_descriptors();
  return new (first_life) State();
}

State* begin_first_life() {
  static State* const kState = make_first();
  State* expected = nullptr;
  if (!forked.load(std::memory_order_acquire))
    life.compare_exchange_strong(expected, kState, std::memory_order_acq_rel);
  return life.load(std::memory_order_acquire);
}

/// A child continues to use these objects, so no other thread may hold their locks. Locked in the order in which calls
/// take them.
void before_fork() {
  tensor_space().tensors.before_fork();
  tensor_space().replacing.lock();
  tensor_space().heap.before_fork();
  device::KnownBlock::before_fork();
  base::SharedMemory::before_fork();
  transport::InprocHub::process().before_fork();
  base::hold_log();
}

void release_tensors_and_log() {
  base::release_log();
  device::KnownBlock::after_fork();
  tensor_space().heap.after_fork();
  tensor_space().replacing.unlock();
  tensor_space().tensors.after_fork();
}

void after_fork() {
  transport::InprocHub::process().after_fork();
  base::SharedMemory::after_fork();
  release_tensors_and_log();
}

/// In the child, whose only thread this is. Takes no lock: another thread of the parent may have held it.
void forget_parent() {
  transport::InprocHub::process().after_fork_in_child();
  base::SharedMemory::after_fork_in_child();
  release_tensors_and_log();
  State* state = life.load(std::memory_order_acquire);
  forked.store(true, std::memory_order_release);
  if (state == nullptr) return;  // a child of a child, or a parent without any node
  state->nodes.for_each_alone([](NodeRef& entry) { entry->node->abandon_after_fork(); });
  state->gossips.for_each_alone([](std::unique_ptr<api::GossipNode>& node) { node->abandon_after_fork(); });
  state->joining.abandon_after_fork();
  last_life.store(state, std::memory_order_release);
  next_life.store(nullptr, std::memory_order_release);
  life.store(nullptr, std::memory_order_release);
}

const char* name_of(HandleKind kind) {
  switch (kind) {
    case HandleKind::kNode:
      return "node";
    case HandleKind::kTable:
      return "table";
    case HandleKind::kRequest:
      return "request";
    case HandleKind::kTensor:
      return "tensor";
    case HandleKind::kStore:
      return "key-value store";
    case HandleKind::kGossip:
      return "gossip node";
    case HandleKind::kGroup:
      return "group";
    case HandleKind::kCustom:
      return "manual reduction";
    case HandleKind::kStrategy:
      return "training strategy";
  }
  return "handle";
}

Fate fate_of(State& state, HandleKind kind, int64_t handle) {
  switch (kind) {
    case HandleKind::kNode:
      return state.nodes.fate(handle);
    case HandleKind::kTable:
      return state.tables.fate(handle);
    case HandleKind::kRequest:
      return state.requests.fate(handle);
    case HandleKind::kTensor:
      return state.tensors.fate(handle);
    case HandleKind::kStore:
      return state.stores.fate(handle);
    case HandleKind::kGossip:
      return state.gossips.fate(handle);
    case HandleKind::kGroup:
      return state.groups.fate(handle);
    case HandleKind::kCustom:
      return state.customs.fate(handle);
    case HandleKind::kStrategy:
      return state.strategies.fate(handle);
  }
  return Fate::kNever;
}

bool any_node(State& state) {
  bool any = false;
  state.nodes.for_each([&](const NodeTable::Pin&) { any = true; });
  return any;
}

base::Status no_node(State& state, const char* function) {
  if (state.was_initialised.load(std::memory_order_acquire)) {
    return base::error(MV_ESTATE, "{}: this process has shut down its node: call mv_init() again first", function);
  }
  return base::error(MV_ESTATE, "{}: call mv_init() first", function);
}

}  // namespace

State::State(uint32_t first_generation)
    : nodes(HandleKind::kNode, first_generation),
      tables(HandleKind::kTable, first_generation),
      requests(HandleKind::kRequest, first_generation),
      stores(HandleKind::kStore, first_generation),
      gossips(HandleKind::kGossip, first_generation),
      heap(tensor_space().heap),
      tensors(tensor_space().tensors),
      groups(HandleKind::kGroup, first_generation),
      customs(HandleKind::kCustom, first_generation),
      strategies(HandleKind::kStrategy, first_generation) {}

State* current_state() noexcept {
  State* state = life.load(std::memory_order_acquire);
  return state != nullptr || forked.load(std::memory_order_acquire) ? state : begin_first_life();
}

State& current_state_for_tensors() {
  if (State* state = current_state()) return *state;
  if (State* state = next_life.load(std::memory_order_acquire)) return *state;
  State* parent = last_life.load(std::memory_order_acquire);
  uint32_t newest = 0;
  if (parent != nullptr) {
    // Handles of the parent must be stale here, whatever the child opens.
    newest = std::max({parent->nodes.newest_generation(), parent->tables.newest_generation(),
                       parent->requests.newest_generation(), parent->stores.newest_generation(),
                       parent->gossips.newest_generation(), parent->groups.newest_generation(),
                       parent->customs.newest_generation(), parent->strategies.newest_generation()});
  }
  auto fresh = std::make_unique<State>(std::min(newest + 1, kLastGeneration));
  State* expected = nullptr;
  return next_life.compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel) ? *fresh.release() : *expected;
}

State& current_state_for_init() {
  State& state = current_state_for_tensors();
  State* expected = nullptr;
  life.compare_exchange_strong(expected, &state, std::memory_order_acq_rel);
  return state;
}

void watch_forks() {
  static const int kFailure = pthread_atfork(before_fork, after_fork, forget_parent);
  if (kFailure != 0) throw std::system_error(kFailure, std::generic_category(), "pthread_atfork");
}

base::Status not_a(State& state, const char* function, HandleKind wanted, int64_t handle) {
  HandleParts parts;
  const bool possible = split_handle(handle, &parts);
  const Fate fate = possible ? fate_of(state, parts.kind, handle) : Fate::kNever;
  if (fate == Fate::kNever && wanted != HandleKind::kTensor && wanted != HandleKind::kStore && wanted != HandleKind::kGossip && !any_node(state)) return no_node(state, function);
  if (fate == Fate::kNever || fate == Fate::kReserved) {
    return base::error(MV_EHANDLE, "{}: {} is not a handle of this library; expected a {}", function, handle,
                       name_of(wanted));
  }
  if (parts.kind != wanted) {
    return base::error(MV_EHANDLE, "{}: {} is a {}{}, not a {}", function, handle,
                       fate == Fate::kClosed ? "closed handle of a " : "", name_of(parts.kind), name_of(wanted));
  }
  if (wanted == HandleKind::kRequest) {
    return base::error(MV_EHANDLE, "{}: {} is a request that was already waited for, tested or cancelled",
                       function, handle);
  }
  return base::error(MV_EHANDLE, "{}: {} is a closed {} handle", function, handle, name_of(wanted));
}

base::Result<int64_t> open_node(State& state, const runtime::Settings& settings, SettingsReport sources, bool is_default) {
  watch_forks();
  NodeRef entry = state.joining.take(settings, is_default);
  if (entry == nullptr) {
    if (is_default) state.joining.drop_default();
    entry = std::make_shared<NodeEntry>();
    entry->node = api::Node::make(settings);
    entry->node->set_devices({find_device_of, device::TensorDevices::may_exist});
    entry->is_default = is_default;
  }
  if (const auto status = entry->node->join(); !status.ok()) {
    if (status.code() == MV_EINTR) state.joining.keep(settings, std::move(entry));
    return status;
  }
  entry->settings = settings;
  entry->settings.rank = entry->node->identity().rank;
  entry->settings.sync = entry->node->identity().sync;
  entry->sources = std::move(sources);
  return state.nodes.insert(std::move(entry));
}

namespace {

/// Returns the pin, or an error if its node has broken down.
template <typename Pin>
base::Result<Pin> sound(Pin pin, const api::Node& node, const char* function, Broken broken) {
  const base::Status* const why = node.defect();
  if (why == nullptr || broken == Broken::kFound) return pin;
  return base::error(why->code(), "{}: {}", function, why->text());
}

base::Status check_working(const NodeEntry& entry, const char* function) {
  if (!entry.finished.load(std::memory_order_relaxed)) return {};
  return base::error(MV_ESTATE, "{}: this worker has finished, because mv_cluster_drain() was called", function);
}

template <typename Table>
base::Result<typename Table::Pin> find(State& state, Table& table, HandleKind kind, const char* function, int64_t handle, Broken broken) {
  auto pin = table.pin(handle);
  if (!pin) return not_a(state, function, kind, handle);
  const NodeEntry& entry = *pin->node;
  if (broken == Broken::kRefused)
    if (auto status = check_working(entry, function); !status.ok()) return status;
  return sound(std::move(pin), *entry.node, function, broken);
}

}  // namespace

base::Result<NodeTable::Pin> find_node(State& state, const char* function, mv_node handle, Broken broken) {
  auto pin = state.nodes.pin(handle == 0 ? state.default_node.load(std::memory_order_acquire) : handle);
  if (!pin) return handle == 0 ? no_node(state, function) : not_a(state, function, HandleKind::kNode, handle);
  const api::Node& node = *(*pin)->node;
  return sound(std::move(pin), node, function, broken);
}

base::Result<NodeTable::Pin> find_working_node(State& state, const char* function, mv_node handle) {
  auto pin = find_node(state, function, handle);
  if (!pin.ok()) return pin;
  if (auto status = check_working(**pin.value(), function); !status.ok()) return status;
  return pin;
}

base::Result<TableTable::Pin> find_table(State& state, const char* function, mv_table handle, Broken broken) {
  return find(state, state.tables, HandleKind::kTable, function, handle, broken);
}

base::Result<RequestTable::Pin> find_request(State& state, const char* function, mv_request handle) {
  return find(state, state.requests, HandleKind::kRequest, function, handle, Broken::kFound);
}

base::Result<StoreTable::Pin> find_store(State& state, const char* function, kv_store handle, Broken broken) {
  return find(state, state.stores, HandleKind::kStore, function, handle, broken);
}

base::Result<GossipTable::Pin> find_gossip(State& state, const char* function, mv_gossip handle) {
  auto pin = state.gossips.pin(handle);
  if (!pin) return not_a(state, function, HandleKind::kGossip, handle);
  return pin;
}

base::Result<GroupTable::Pin> find_group(State& state, const char* function, mv_group handle, Broken broken) {
  return find(state, state.groups, HandleKind::kGroup, function, handle, broken);
}

base::Result<CustomTable::Pin> find_custom(State& state, const char* function, mv_custom handle, Broken broken) {
  return find(state, state.customs, HandleKind::kCustom, function, handle, broken);
}

base::Result<StrategyTable::Pin> find_strategy(State& state, const char* function, mv_strategy handle, Broken broken) {
  return find(state, state.strategies, HandleKind::kStrategy, function, handle, broken);
}

base::Result<TensorPin> find_tensor(State& state, const char* function, mv_tensor handle) {
  auto pin = state.tensors.pin(handle);
  if (!pin) return not_a(state, function, HandleKind::kTensor, handle);
  return TensorPin(std::move(pin));
}

}  // namespace mv::capi
