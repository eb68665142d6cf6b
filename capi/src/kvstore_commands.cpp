// Commands to servers: sending, and executing those that this process receives as a server.

#include <polyverso/kvstore.h>

#include <fmt/core.h>

#include <exception>
#include <utility>

#include "boundary.hpp"
#include "callbacks.hpp"
#include "calls.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

base::Status run_controller(kv_controller controller, void* user, int64_t head, const std::string& body) {
  try {
    return check_outcome("controller", controller(user, head, body.c_str()));
  } catch (const std::exception& thrown) {
    return base::error(MV_EINVAL, "the controller threw: {}", thrown.what());
  }
}

std::shared_ptr<Control> control_of(NodeEntry& entry) {
  std::lock_guard lock(entry.controlling);
  return entry.control;
}

base::Status set_controller(State& state, const NodeRef& entry, kv_controller controller, void* user) {
  if (entry->node->identity().server_id < 0) return base::Status(MV_ESTATE, "this process is not a server");
  if (const auto known = control_of(*entry); known != nullptr && known->is_here() && Callbacks::of_this_thread(state)->is_inside())
    return base::Status(MV_EREENTRANT, "this thread is inside a callback");
  std::shared_ptr<Control> made;
  std::function<void(int64_t)> waiting;
  if (controller != nullptr) {
    const auto callbacks = Callbacks::of_this_thread(state);
    Control::Controller run;
    if (controller != KV_CONTROLLER_MANUAL)
      run = [controller, user](int64_t head, const std::string& body) { return run_controller(controller, user, head, body); };
    made = std::make_shared<Control>(entry, callbacks, std::move(run));
    callbacks->add(made);
    waiting = [callbacks, manual = made->is_manual()](int64_t more) { callbacks->due(more, manual); };
  }
  {
    std::lock_guard lock(entry->controlling);
    entry->control = std::move(made);
  }
  entry->node->set_controller(controller != nullptr, std::move(waiting));
  return {};
}

/// While it waits, it executes the callbacks of this thread: a process that is worker and server sends commands to
/// itself.
base::Status send_command(State& state, StoreEntry& store, int64_t head, const std::string& body, const CallPlan& plan) {
  if (!store.store->type().dist) return base::error(MV_ESTATE, "a {} store has no servers", store.store->type().name);
  api::Node& node = *store.node->node;
  const auto callbacks = Callbacks::of_this_thread(state);
  if (callbacks->is_inside()) return base::Status(MV_EREENTRANT, "this thread is inside a callback");
  const auto control = control_of(*store.node);
  if (plan.options.mode != api::Mode::kAsync && control != nullptr && control->is_manual() && control->is_here())
    return base::Status(MV_EREENTRANT, "this process is also a server, and this thread executes its commands manually: use MV_ASYNC, execute the command, then wait");
  const auto start = [&](const api::CallOptions& how) { return node.send_command(head, body, how); };
  if (plan.options.mode == api::Mode::kAsync) return run_call(state, store.node, plan, start);
  api::CallOptions how = plan.options;
  how.mode = api::Mode::kAsync;
  const api::Started started = start(how);
  if (!started.status.ok()) return started.status;
  for (;;) {
    const base::Status waited =
        node.wait_until([&] { return node.done(started.call) || callbacks->any_to_run(); }, base::kNever);  // the call
                                                                                                            // has its
                                                                                                            // own
                                                                                                            // deadline
    if (node.done(started.call)) return node.result(started.call);
    if (waited.ok()) {
      callbacks->run();
      continue;
    }
    if (waited.code() != MV_EINTR) return waited;
    if (plan.request == nullptr) {
      static_cast<void>(node.cancel(started.call));
      return base::Status(MV_EINTR, "a signal interrupted the wait; outcome unknown: servers that have begun the command continue it");
    }
    *plan.request = keep_interrupted(state, store.node, started.call);
    return base::Status(MV_EINTR, "a signal interrupted the wait; the command continues");
  }
}

base::Status send_command(State& state, kv_store handle, int64_t head, const char* body, const mv_call_options* options) {
  if (body == nullptr) return base::Status(MV_EINVAL, "body is NULL");
  CallPlan plan;
  if (auto status = plan_call("kv_send_command", options, MayForget::kNo, &plan); !status.ok()) return status;
  plan.lends = false;
  auto pin = find_store(state, "kv_send_command", handle);
  if (!pin.ok()) return pin.status();
  return send_command(state, *pin.value(), head, body, plan);
}

base::Status run_server(State& state, const NodeRef& entry, kv_controller controller, void* user) {
  if (entry->node->identity().worker_id >= 0)
    return base::Status(MV_ESTATE, "this process is also a worker, so the call would wait for itself: use kv_set_controller()");
  if (controller == KV_CONTROLLER_MANUAL) return base::Status(MV_EINVAL, "to execute commands manually, use kv_set_controller() and kv_next_command()");
  if (auto status = set_controller(state, entry, controller, user); !status.ok()) return status;
  const auto callbacks = Callbacks::of_this_thread(state);
  while (!entry->node->workers_gone()) {
    const base::Status waited = entry->node->wait_until([&] { return entry->node->workers_gone() || callbacks->any_to_run(); }, base::kNever);
    if (!waited.ok()) return waited;
    callbacks->run();
  }
  return {};
}

base::Status next_command(State& state, const NodeRef& entry, int64_t timeout_ms, int32_t* found, int64_t* head, char* text, uint64_t capacity,
                          uint64_t* length) {
  if (found == nullptr || head == nullptr) return base::Status(MV_EINVAL, "found or head is NULL");
  const auto control = control_of(*entry);
  if (control == nullptr || !control->is_manual()) return base::Status(MV_ESTATE, "commands are not executed manually: set KV_CONTROLLER_MANUAL");
  if (!control->is_here()) return base::Status(MV_ESTATE, "another thread set the controller: execute commands on that thread");
  const api::Command* command = control->next();
  if (command == nullptr && timeout_ms != 0) {
    const auto callbacks = Callbacks::of_this_thread(state);
    const auto done = [&] { return entry->node->workers_gone() || callbacks->any_due(); };
    const base::Status waited = entry->node->wait_until(done, span_of_ms(timeout_ms));
    if (!waited.ok() && waited.code() != MV_ETIMEOUT) return waited;
    command = control->next();
  }
  *found = command != nullptr ? KV_COMMAND_HERE : entry->node->workers_gone() ? KV_COMMAND_NEVER : KV_COMMAND_NOT_YET;
  *head = command != nullptr ? command->head : 0;
  put_text(command != nullptr ? command->body : "", text, capacity, length);
  return {};
}

base::Status command_done(const NodeRef& entry, mv_status outcome) {
  const auto control = control_of(*entry);
  if (control != nullptr && control->is_here() && control->is_manual() && control->done(check_outcome("controller", outcome))) return {};
  return base::Status(MV_ESTATE, "this thread executes no command: call kv_next_command() first");
}

/// Runs work(State&, NodeRef) of an exported function, whose name begins the error message.
template <typename Work>
mv_status with_server(const char* function, mv_node node, Work work) {
  return boundary(function, [&](State& state) -> base::Status {
    NodeRef entry;
    {
      auto pin = find_node(state, function, node);
      if (!pin.ok()) return pin.status();
      entry = *pin.value();
    }
    return named(function, work(state, entry));
  });
}

}  // namespace
}  // namespace mv::capi

using mv::capi::NodeRef;
using mv::capi::State;

mv_status kv_send_command(kv_store store, int64_t head, const char* body, const mv_call_options* options) {
  return mv::capi::boundary("kv_send_command", [&](State& state) -> mv::base::Status {
    return mv::capi::named("kv_send_command", mv::capi::send_command(state, store, head, body, options));
  });
}
mv_status kv_set_controller(mv_node node, kv_controller controller, void* user) {
  return mv::capi::with_server("kv_set_controller", node, [&](State& state, const NodeRef& entry) {
    return mv::capi::set_controller(state, entry, controller, user);
  });
}
mv_status kv_run_server(mv_node node, kv_controller controller, void* user) {
  return mv::capi::with_server("kv_run_server", node, [&](State& state, const NodeRef& entry) {
    return mv::capi::run_server(state, entry, controller, user);
  });
}
mv_status kv_next_command(mv_node node, int64_t timeout_ms, int32_t* found, int64_t* head, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::with_server("kv_next_command", node, [&](State& state, const NodeRef& entry) -> mv::base::Status {
    if (auto status = mv::capi::check_text_out("kv_next_command", text, capacity, length); !status.ok()) return status;
    if (auto status = mv::capi::check_timeout("kv_next_command", timeout_ms); !status.ok()) return status;
    return mv::capi::next_command(state, entry, timeout_ms, found, head, text, capacity, length);
  });
}
mv_status kv_command_done(mv_node node, mv_status outcome) {
  return mv::capi::with_server("kv_command_done", node,
                             [&](State&, const NodeRef& entry) { return mv::capi::command_done(entry, outcome); });
}
