#include "base/operation.hpp"

#include <cassert>

namespace mv::base {

void Operation::set_state(State next) {
  assert(next > state() || (next == State::kRunning && state() == State::kRunning));  // a repeated shrink of a group is the same operation
  state_.store(next, std::memory_order_release);
}

void Operation::complete(const Status& status) {
  const auto self = shared_from_this();  // a waiter may drop its reference as soon as the operation is over
  status_.assign(status);
  set_state(State::kOver);
  ended(status);
}

}  // namespace mv::base
