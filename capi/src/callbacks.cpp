#include "callbacks.hpp"

#include <algorithm>
#include <utility>

#include "base/per_thread.hpp"

namespace mv::capi {

namespace {

/// The thread's own reference; it ends with the thread.
struct OfThread {
  std::shared_ptr<Callbacks> callbacks;
  ~OfThread() {
    if (callbacks != nullptr) callbacks->end();
  }
};
OfThread& of_thread() { return base::per_thread<OfThread>(); }

}  // namespace

std::shared_ptr<Callbacks> Callbacks::of_this_thread(State& state) {
  // A forked child does not use its parent's.
  if (of_thread().callbacks == nullptr || !of_thread().callbacks->is_of(state)) of_thread().callbacks = std::make_shared<Callbacks>(state);
  return of_thread().callbacks;
}

bool Callbacks::is_here() const { return of_thread().callbacks.get() == this; }

void Callbacks::due(int64_t more, bool manual) {
  if (more == 0) return;
  (manual ? manual_ : due_).fetch_add(more, std::memory_order_acq_rel);
  {
    std::lock_guard lock(state_.callbacks);
    const int64_t before = std::exchange(state_.callbacks_due, state_.callbacks_due + more);
    if (more < 0 && (before > 0) == (state_.callbacks_due > 0)) return;
  }
  show_due_callbacks(state_);
}

void Callbacks::add(const std::shared_ptr<kvstore::Store>& store) {
  std::erase_if(stores_, [&](const std::weak_ptr<kvstore::Store>& known) { return known.expired() || known.lock() == store; });
  stores_.push_back(store);
}

void Callbacks::add(const std::shared_ptr<Control>& control) {
  std::erase_if(controls_, [](const std::weak_ptr<Control>& known) { return known.expired(); });
  controls_.push_back(control);
}

bool Callbacks::has_any() const {
  const auto lives = [](const auto& known) { return !known.expired(); };
  return std::ranges::any_of(stores_, lives) || std::ranges::any_of(controls_, lives);
}

bool Callbacks::run() {
  bool ran = false;
  if (!any_due()) return ran;
  const auto stores = stores_;  // a callback may set another store's
  for (const auto& known : stores)
    if (const auto store = known.lock()) ran = store->updates().run_due() || ran;
  const auto controls = controls_;
  for (const auto& known : controls)
    if (const auto control = known.lock()) ran = control->run_due() || ran;
  return ran;
}

const api::Command* Control::next() {
  if (active_) return &*active_;
  const NodeRef entry = node_.lock();
  if (entry != nullptr) active_ = entry->node->next_command();
  if (active_) thread_->inside(true);
  return active_ ? &*active_ : nullptr;
}

bool Control::done(const base::Status& outcome) {
  if (!active_) return false;
  const uint64_t number = active_->number;
  active_.reset();
  thread_->inside(false);
  if (const NodeRef entry = node_.lock()) entry->node->command_done(number, outcome);
  return true;
}

bool Control::run_due() {
  if (active_) return false;
  bool ran = false;
  while (const api::Command* command = next()) {
    if (is_manual()) return true;
    const api::Command given = *command;
    done(controller_(given.head, given.body));
    ran = true;
  }
  return ran;
}

void show_due_callbacks(State& state) {
  std::vector<NodeRef> nodes;
  state.nodes.for_each([&](const NodeTable::Pin& pin) { nodes.push_back(*pin); });
  std::lock_guard lock(state.callbacks);
  for (const NodeRef& entry : nodes) entry->node->callbacks_due(state.callbacks_due > 0);
}

}  // namespace mv::capi
