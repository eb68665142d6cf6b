#include "base/mix.hpp"
#include "shard/updater/progress.hpp"

#include <limits>

namespace mv::shard {

std::vector<double> Family::advance(const Updater& updater, const Turn& turn) {
  std::lock_guard lock(mutex_);
  updater.advance(turn, shared_);
  return shared_;
}

std::vector<double> Family::shared() const {
  std::lock_guard lock(mutex_);
  return shared_;
}

void Family::set(const std::vector<double>& shared) {
  std::lock_guard lock(mutex_);
  if (shared.size() == shared_.size()) shared_ = shared;
}

std::shared_ptr<Family> Families::of(std::string_view store, std::string_view name, const Updater& updater) {
  std::lock_guard lock(mutex_);
  auto& known = families_[{std::string(store), std::string(name)}];
  auto family = known.lock();
  if (family == nullptr) known = family = std::make_shared<Family>(updater);
  return family;
}

Step Progress::step(const Updater& updater, bool begins) {
  std::lock_guard lock(mutex_);
  begins |= updates_ == 0;  // the first piece went to the previous updater
  updates_ += begins ? 1 : 0;
  pieces_ = begins ? 0 : pieces_ + 1;
  const Turn turn{.count = updates_, .latest = updates_, .before = updates_ - 1, .stream = base::mix(updates_) + pieces_};
  if (begins && !shared_.empty()) shared_ = family_->advance(updater, turn);
  return updater.step(turn, shared_);
}

Mark Progress::mark() const {
  std::lock_guard lock(mutex_);
  return {updates_, family_->shared()};
}

void Progress::set(const Mark& mark) {
  std::lock_guard lock(mutex_);
  updates_ = mark.updates;
  pieces_ = std::numeric_limits<uint32_t>::max();  // unknown: above any real count
  family_->set(mark.shared);
  shared_ = family_->shared();
}

WithinAdd Progress::within_add() const {
  std::lock_guard lock(mutex_);
  return {pieces_, shared_};
}

void Progress::set_within_add(const WithinAdd& progress) {
  std::lock_guard lock(mutex_);
  pieces_ = progress.pieces;
  if (progress.shared.size() == shared_.size()) shared_ = progress.shared;
}

}  // namespace mv::shard
