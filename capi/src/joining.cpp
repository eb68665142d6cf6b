// Nodes that are joining a cluster, between two attempts of their caller.

#include <utility>

#include "state.hpp"

namespace mv::capi {

NodeRef Joining::take(Slot& slot) {
  slot.node = nullptr;
  return std::exchange(slot.entry, nullptr);
}

NodeRef Joining::take(const runtime::Settings& settings, bool is_default) {
  std::lock_guard lock(mutex_);
  for (Slot& slot : slots_)
    if (slot.entry != nullptr && slot.entry->is_default == is_default && slot.settings == settings) return take(slot);
  return nullptr;
}

void Joining::keep(const runtime::Settings& settings, NodeRef entry) {
  std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.entry != nullptr) continue;
    slot.settings = settings;
    slot.entry = std::move(entry);
    slot.node = slot.entry->node.get();
    return;
  }
}

bool Joining::drop_default() {
  NodeRef dropped;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  for (Slot& slot : slots_)
    if (slot.entry != nullptr && slot.entry->is_default) dropped = take(slot);
  return dropped != nullptr;
}

void Joining::abandon_after_fork() noexcept {
  for (Slot& slot : slots_)
    if (api::Node* const node = slot.node) node->abandon_after_fork();
}

}  // namespace mv::capi
