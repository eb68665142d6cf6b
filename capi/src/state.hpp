#pragma once
// All that the library keeps for a process: nodes, tables, requests and tensors behind handles, and the count of mv_init().

#include <polyverso/polyverso.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.hpp"
#include "handles.hpp"
#include "node/node.hpp"
#include "node/settings.hpp"
#include "settings.hpp"
#include "tensor/tensor.hpp"

namespace mv::capi {

/// A running node. Lives until the last handle and the last call on it are gone.
struct NodeEntry {
  std::unique_ptr<node::Node> node;
  node::Settings settings;  ///< with the rank and mode that it got
  SettingsReport sources;   ///< where they came from
  std::mutex shutdown;  ///< one mv_shutdown() of a node at a time
  bool is_default = false;
};
using NodeRef = std::shared_ptr<NodeEntry>;

// In both, `node` comes first: it must go last.
struct TableEntry {
  NodeRef node;
  node::TableRef table;
};
struct RequestEntry {
  NodeRef node;
  node::CallRef call;
};

using NodeTable = HandleTable<NodeRef>;
using TableTable = HandleTable<TableEntry>;
using RequestTable = HandleTable<RequestEntry>;
using TensorTable = HandleTable<tensor::Tensor>;

/// One life of the library: a forked child begins another.
struct State {
  explicit State(uint32_t first_generation = 1);

  NodeTable nodes;
  TableTable tables;
  RequestTable requests;
  tensor::Heap heap;
  TensorTable tensors;

  std::atomic<int64_t> default_node{0};  ///< its handle; 0 while there is none
  std::atomic<bool> was_initialised{false};
  std::mutex init;  ///< guards what follows, during all of mv_init() and the default node's mv_shutdown()
  int64_t init_count = 0;
};

/// The state of this life; null in a forked child before its first mv_init(). Costs one load.
State* current_state() noexcept;
/// The same, but begins a new life in a forked child.
State& current_state_for_init();
/// Makes forked children forget the nodes and tensors of their parent. Called before the first of them comes to be.
void watch_forks();

/// A pin on the node that `handle` names, 0 being the default; or why there is none. `function` begins the message.
base::Result<NodeTable::Pin> find_node(State& state, const char* function, mv_node handle);
base::Result<TableTable::Pin> find_table(State& state, const char* function, mv_table handle);
base::Result<RequestTable::Pin> find_request(State& state, const char* function, mv_request handle);
base::Result<TensorTable::Pin> find_tensor(State& state, const char* function, mv_tensor handle);
/// MV_EHANDLE with what `handle` is instead of one of `wanted`, or MV_ESTATE where no node runs that it could be of.
base::Status not_a(State& state, const char* function, Kind wanted, int64_t handle);

}  // namespace mv::capi
