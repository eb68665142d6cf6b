#include "leaving.hpp"

#include <polyverso/polyverso.h>
#include <stdlib.h>

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "boundary.hpp"
#include "outcome.hpp"
#include "state.hpp"
#include "transport/loop/loop.hpp"

namespace mv::capi {
namespace {

template <typename Table>
void close_all(Table& table, const NodeEntry& entry) {
  table.for_each([&](const typename Table::Pin& pin) {
    if (pin->node.get() == &entry) table.close(pin);
  });
}

/// Closes the handles of a node that has ended. `pin` is the caller's only one.
void close_handles(State& state, const NodeTable::Pin& pin) {
  const NodeEntry& entry = **pin;
  state.nodes.close(pin);
  close_all(state.strategies, entry);
  close_all(state.customs, entry);
  close_all(state.groups, entry);
  close_all(state.tables, entry);
  close_all(state.stores, entry);
  close_all(state.requests, entry);
}

}  // namespace

void close_groups(State& state, const NodeEntry& entry) {
  state.groups.for_each([&](const GroupTable::Pin& group) {
    if (group->node.get() == &entry) static_cast<void>(group->group->close());
  });
}

namespace {

/// Shuts a node down, unless a signal interrupts it.
base::Status end_node(State& state, const NodeTable::Pin& pin) {
  NodeEntry& entry = **pin;
  close_groups(state, entry);
  auto status = entry.node->shutdown();
  if (status.code() != MV_EINTR) close_handles(state, pin);
  return status;
}

void forget_default(State& state) {
  state.init_count = 0;
  state.default_node.store(0, std::memory_order_release);
}

base::Status shutdown_default(State& state) {
  std::lock_guard lock(state.init);
  if (state.joining.drop_default()) return {};
  auto pin = find_node(state, "mv_shutdown", 0, Broken::kFound);
  if (!pin.ok()) return pin.status();
  if (state.init_count > 1) {
    --state.init_count;
    return {};
  }
  auto status = end_node(state, pin.value());
  if (status.code() != MV_EINTR) forget_default(state);
  return status;
}

base::Status shutdown_opened(State& state, mv_node node) {
  auto pin = find_node(state, "mv_shutdown", node, Broken::kFound);
  if (!pin.ok()) return pin.status();
  NodeEntry& entry = **pin.value();
  if (entry.is_default) {
    return base::error(MV_EHANDLE, "mv_shutdown: {} is the default node: end each mv_init() with mv_shutdown(0)", node);
  }
  std::lock_guard lock(entry.shutdown);
  if (state.nodes.fate(node) != Fate::kOpen) return not_a(state, "mv_shutdown", HandleKind::kNode, node);
  return end_node(state, pin.value());
}

void abort_node(State& state, const NodeTable::Pin& pin, const std::string& reason) {
  (*pin)->node->abort(reason);
  close_handles(state, pin);
}

base::Status abort_default(State& state, const std::string& reason) {
  std::lock_guard lock(state.init);
  if (state.joining.drop_default()) return {};
  const NodeTable::Pin pin = state.nodes.pin(state.default_node.load(std::memory_order_acquire));
  if (pin) abort_node(state, pin, reason);
  forget_default(state);
  return {};
}

base::Status abort_opened(State& state, mv_node node, const std::string& reason) {
  const NodeTable::Pin pin = state.nodes.pin(node);
  if (!pin && state.nodes.fate(node) == Fate::kClosed) return {};
  if (!pin) return not_a(state, "mv_abort", HandleKind::kNode, node);
  if ((*pin)->is_default) return abort_default(state, reason);
  std::lock_guard lock((*pin)->shutdown);
  if (state.nodes.fate(node) == Fate::kOpen) abort_node(state, pin, reason);
  return {};
}

// ---- the end of the process

/// Ends one node. A signal ends the wait for the other workers: the user wants the process to end.
void leave(State& state, const NodeTable::Pin& pin, int exit_status) {
  if (exit_status == 0) {
    const base::Status status = end_node(state, pin);
    if (status.code() != MV_EINTR) {
      if (!status.ok()) base::log_warn("at the end of the process: {}", status.text());
      return;
    }
    return abort_node(state, pin, "a signal ended its process while it shut down at exit");
  }
  abort_node(state, pin, fmt::format("its process ended with exit status {} without calling shutdown()", exit_status));
}

/// Ends all nodes at once: they may be members of one cluster, and wait for each other.
void leave_all(State& state, int exit_status) {
  std::unique_lock lock(state.init, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread is still inside mv_init() or mv_shutdown()
  std::vector<NodeTable::Pin> pins;
  state.nodes.for_each([&](NodeTable::Pin pin) { pins.push_back(std::move(pin)); });
  if (pins.empty()) return;
  std::vector<std::thread> others;
  for (size_t i = 1; i < pins.size(); ++i) others.emplace_back([&state, &pins, i, exit_status] { leave(state, pins[i], exit_status); });
  leave(state, pins[0], exit_status);
  for (std::thread& other : others) other.join();
}

void at_exit(int exit_status, void*) {
  State* const state = current_state();  // null in a forked child, whose parent has the nodes
  // Not from inside a callback, nor from a signal handler that interrupted a call: this thread can't drive the loop.
  if (state == nullptr || transport::Loop::driven_by_this_thread()) return;
  static_cast<void>(guarded("exit", [&] {
    leave_all(*state, exit_status);
    return base::Status();
  }));
}

}  // namespace

void watch_exit() {
  static const int kFailure = on_exit(at_exit, nullptr);
  if (kFailure != 0) base::log_warn("no memory for an exit handler: call mv_shutdown() before the process ends");
}

// Handlers run in the reverse order: this one before the destructors of a library that was loaded before. It leaves nothing to do for the first one.
void watch_exit_again() {
  if (on_exit(at_exit, nullptr) != 0) base::log_warn("no memory for an exit handler: call mv_shutdown() before the process ends");
}

}  // namespace mv::capi

using namespace mv::capi;

mv_status mv_shutdown(mv_node node) {
  return boundary("mv_shutdown", [&](State& state) { return node == 0 ? shutdown_default(state) : shutdown_opened(state, node); });
}

mv_status mv_abort(mv_node node, const char* reason) {
  return boundary("mv_abort", [&](State& state) {
    const std::string line = reason_line(reason);
    return node == 0 ? abort_default(state, line) : abort_opened(state, node, line);
  });
}
