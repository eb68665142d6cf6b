#include "table/updater/progress.hpp"

#include <limits>

namespace mv::table {

Step Progress::step(const Updater& updater, bool begins) {
  std::lock_guard lock(mutex_);
  begins |= updates_ == 0;  // whose first piece went to another updater
  updates_ += begins ? 1 : 0;
  pieces_ = begins ? 0 : pieces_ + 1;
  const Turn turn{.count = updates_, .latest = updates_, .before = updates_ - 1, .stream = mix(updates_) + pieces_};
  if (begins) updater.advance(turn, shared_);
  return updater.step(turn, shared_);
}

Mark Progress::mark() const {
  std::lock_guard lock(mutex_);
  return {updates_, shared_};
}

void Progress::set(const Mark& mark) {
  std::lock_guard lock(mutex_);
  updates_ = mark.updates;
  pieces_ = std::numeric_limits<uint32_t>::max();  // nobody knows how many there were
  if (mark.shared.size() == shared_.size()) shared_ = mark.shared;
}

}  // namespace mv::table
