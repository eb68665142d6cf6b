#pragma once
// The library's state in a process: nodes, tables, requests and tensors behind handles, and the count of mv_init().

#include <polyverso/polyverso.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "api/gossip/gossip_node.hpp"
#include "api/group/group.hpp"
#include "api/kvstore/store.hpp"
#include "api/node/node.hpp"
#include "base/result.hpp"
#include "device/shard.hpp"
#include "device/tensors.hpp"
#include "handles.hpp"
#include "runtime/settings.hpp"
#include "settings.hpp"
#include "tensor/tensor.hpp"

namespace mv::capi {

class Control;

/// A running node. Lives until its last handle is closed and the last call on it has ended.
struct NodeEntry {
  std::unique_ptr<api::Node> node;
  runtime::Settings settings;  ///< with the assigned rank and mode
  SettingsReport sources;   ///< the sources of the settings
  std::mutex shutdown;  ///< one mv_shutdown() of a node at a time
  bool is_default = false;
  std::atomic<bool> finished{false};  ///< by mv_cluster_drain(): this process works no more, it only serves
  std::atomic<uint64_t> stores{0};  ///< key-value stores that were created on it
  std::mutex controlling;
  std::shared_ptr<Control> control;  ///< executes commands sent to this server; null: none set
};
using NodeRef = std::shared_ptr<NodeEntry>;

// In these entries `node` comes first, so that it is destroyed last.
struct TableEntry {
  NodeRef node;
  api::TableRef table;
};
struct RequestEntry {
  NodeRef node;
  api::CallRef call;
  bool lends;  ///< uses the caller's buffers until the call ends
};
/// The handles of an update that a thread runs manually.
struct ManualUpdate {
  mv_tensor merged, stored;
};
struct StoreEntry {
  NodeRef node;
  std::shared_ptr<kvstore::Store> store;
  std::shared_ptr<ManualUpdate> manual = {};  ///< only for the thread that set the updater
};

/// The thread that runs the function of a group's custom reduction now, if any.
using ReducingThread = std::atomic<std::thread::id>;
struct GroupEntry {
  NodeRef node;
  api::GroupRef group;
  std::shared_ptr<ReducingThread> reducing = std::make_shared<ReducingThread>();
};
/// A manual reduction.
struct CustomEntry {
  NodeRef node;
  api::GroupRef group;
  api::CustomReductionRef reduction;
  std::shared_ptr<ReducingThread> reducing;  ///< of the group
};

struct Strategy;  // strategies.hpp
struct StrategyEntry {
  NodeRef node;
  std::shared_ptr<Strategy> strategy;
};

using NodeTable = HandleTable<NodeRef>;
using TableTable = HandleTable<TableEntry>;
using RequestTable = HandleTable<RequestEntry>;
using StoreTable = HandleTable<StoreEntry>;
using GossipTable = HandleTable<std::unique_ptr<api::GossipNode>>;
using GroupTable = HandleTable<GroupEntry>;
using CustomTable = HandleTable<CustomEntry>;
using StrategyTable = HandleTable<StrategyEntry>;

/// The tensor behind a handle. Operations replace a row-sparse one by another with other rows; a dense one never
/// changes. Any thread.
class OpenTensor {
 public:
  explicit OpenTensor(tensor::Tensor tensor);

  bool is_row_sparse() const { return is_row_sparse_; }
  /// Without a lock: only for a dense one.
  const tensor::Tensor& dense() const { return tensor_; }
  tensor::Tensor now() const;
  /// Replaces a row-sparse tensor.
  void replace(tensor::Tensor made);
  /// The handle was closed: it no longer counts as a user of the tensor's memory.
  void let_go();

 private:
  const bool is_row_sparse_;
  bool holds_ = true;
  tensor::Tensor tensor_;
};
using TensorTable = HandleTable<OpenTensor>;

/// The tensor of an open handle, as it was at the lookup. Keeps the handle open.
class TensorPin {
 public:
  explicit TensorPin(TensorTable::Pin pin) : pin_(std::move(pin)) {
    if (pin_->is_row_sparse()) now_.emplace(pin_->now());
  }
  const tensor::Tensor& operator*() const { return now_ ? *now_ : pin_->dense(); }
  const tensor::Tensor* operator->() const { return &**this; }
  /// The pin of the handle, to replace its tensor.
  TensorTable::Pin& pin() { return pin_; }

 private:
  TensorTable::Pin pin_;
  std::optional<tensor::Tensor> now_;
};

/// Nodes whose mv_init() or mv_node_open() a signal interrupted: they continue joining until the call is repeated. Any
/// thread.
class Joining {
 public:
  /// The node that was kept with these settings, or null.
  NodeRef take(const runtime::Settings& settings, bool is_default);
  /// Keeps few at a time: if there is no room, the node is given up.
  void keep(const runtime::Settings& settings, NodeRef entry);
  /// Gives up the default node. False if there is none here.
  bool drop_default();
  /// In a forked child; see api::Node::abandon_after_fork().
  void abandon_after_fork() noexcept;

 private:
  struct Slot {
    std::atomic<api::Node*> node{nullptr};  ///< for a forked child, which can't lock
    NodeRef entry;
    runtime::Settings settings;
  };
  NodeRef take(Slot& slot);

  std::mutex mutex_;
  std::array<Slot, 8> slots_;
};

/// Lets nodes leave at the exit of the process before what has been loaded until now ends, such as a plug-in for devices.
void watch_exit_again();

/// The process's tensors. They need no node and outlive all nodes. A forked child keeps them: its writes are its own.
struct TensorSpace {
  tensor::Heap heap;
  TensorTable tensors{HandleKind::kTensor, 1};
  device::TensorDevices devices{heap, watch_exit_again};
  device::TableDevices table_devices{devices};
  std::mutex replacing;  ///< guards the values of row-sparse tensors
};

TensorSpace& tensor_space();
/// The device in whose memory an address of a caller is; null: the host's.
base::Result<tensor::Device*> find_device_of(const void* memory);
/// Sets the device of a call's data, api::ConstData or MutableData.
template <typename Data>
base::Status locate(Data& data) {
  if (data.count == 0) return {};
  const auto device = find_device_of(data.values);
  if (!device.ok()) return device.status();
  data.device = device.value();
  return {};
}

/// One life of the library: a forked child begins a new one.
struct State {
  explicit State(uint32_t first_generation = 1);

  NodeTable nodes;
  TableTable tables;
  RequestTable requests;
  StoreTable stores;
  GossipTable gossips;
  tensor::Heap& heap;
  TensorTable& tensors;

  std::atomic<int64_t> default_node{0};  ///< its handle; 0 while there is none
  std::atomic<bool> was_initialised{false};
  Joining joining;
  std::mutex init;  ///< guards the following members, during all of mv_init() and the default node's mv_shutdown()
  int64_t init_count = 0;
  std::mutex local;         ///< guards local_node
  mv_node local_node = 0;   ///< of the stores of this process alone; 0 before the first
  std::mutex callbacks;     ///< guards callbacks_due
  int64_t callbacks_due = 0;  ///< of all threads, waiting for a poll

  GroupTable groups;
  CustomTable customs;
  StrategyTable strategies;
};

/// The state of this life; null in a forked child before its first mv_init(). Costs one load.
State* current_state() noexcept;
/// current_state(), but begins a new life in a forked child.
State& current_state_for_init();
/// The state for functions of tensors alone: in a forked child that of the life that its mv_init() will begin.
State& current_state_for_tensors();
/// Installs the fork handlers: forked children forget the nodes of their parent, and keep its tensors as their own.
/// Called before the first node or tensor exists.
void watch_forks();

/// Starts a node, or continues with one that a signal interrupted while joining, and returns its handle.
base::Result<int64_t> open_node(State& state, const runtime::Settings& settings, SettingsReport sources, bool is_default);
/// Whether a lookup finds a node that has broken down (api::Node::defect()), and what belongs to one that has finished: only
/// functions that end it use kFound.
enum class Broken { kRefused, kFound };
/// A pin on the node of `handle`, 0 being the default; or an error. `function` begins the message.
base::Result<NodeTable::Pin> find_node(State& state, const char* function, mv_node handle, Broken broken = Broken::kRefused);
/// A node whose process has not finished as a worker.
base::Result<NodeTable::Pin> find_working_node(State& state, const char* function, mv_node handle);
base::Result<TableTable::Pin> find_table(State& state, const char* function, mv_table handle, Broken broken = Broken::kRefused);
base::Result<RequestTable::Pin> find_request(State& state, const char* function, mv_request handle);
base::Result<StoreTable::Pin> find_store(State& state, const char* function, kv_store handle, Broken broken = Broken::kRefused);
base::Result<GossipTable::Pin> find_gossip(State& state, const char* function, mv_gossip handle);
base::Result<GroupTable::Pin> find_group(State& state, const char* function, mv_group handle, Broken broken = Broken::kRefused);
base::Result<CustomTable::Pin> find_custom(State& state, const char* function, mv_custom handle, Broken broken = Broken::kRefused);
base::Result<StrategyTable::Pin> find_strategy(State& state, const char* function, mv_strategy handle, Broken broken = Broken::kRefused);
base::Result<TensorPin> find_tensor(State& state, const char* function, mv_tensor handle);
/// MV_EHANDLE, which says what `handle` is instead of one of `wanted`; or MV_ESTATE if no node runs that it could
/// belong to.
base::Status not_a(State& state, const char* function, HandleKind wanted, int64_t handle);

}  // namespace mv::capi
