#pragma once
// Takes a step back where what follows it throws.

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
  /// It went well.
  void keep() { kept_ = true; }

 private:
  Step step_;
  bool kept_ = false;
};

}  // namespace mv::base
