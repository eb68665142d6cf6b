#pragma once
// A scope guard that undoes a step if a later one throws.

#include <utility>

namespace mv::base {

template <typename Step>
class Undo {
 public:
  explicit Undo(Step step) : step_(std::move(step)) {}
  ~Undo() {
    if (!kept_) step_();
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  /// Disarms the guard: the step stays done.
  void keep() { kept_ = true; }

 private:
  Step step_;
  bool kept_ = false;
};

}  // namespace mv::base
