#pragma once
// The progress of a shard with an updater that counts its updates.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shard/updater/updater.hpp"

namespace mv::shard {

/// The progress in the form that checkpoints save.
struct Mark {
  uint64_t updates = 0;        ///< adds that were applied
  std::vector<double> shared;  ///< Updater::shared()
  bool operator==(const Mark&) const = default;
};

/// How far an add is whose pieces have not all arrived.
struct WithinAdd {
  uint64_t pieces = 0;         ///< after the first one
  std::vector<double> shared;  ///< Updater::shared() at its beginning
};

/// The common state of tensors that share an optimizer: Updater::shared(). Any thread.
class Family {
 public:
  explicit Family(const Updater& updater) : shared_(updater.shared().begin(), updater.shared().end()) {}

  /// Advances the state for an update of one tensor, and returns the state for that update.
  std::vector<double> advance(const Updater& updater, const Turn& turn);
  std::vector<double> shared() const;
  /// Continues from a saved state. Ignores the state of another updater.
  void set(const std::vector<double>& shared);

 private:
  mutable std::mutex mutex_;
  std::vector<double> shared_;
};

/// The families of a server: one for each store and updater, as long as a key of the store uses the updater. Any
/// thread.
class Families {
 public:
  std::shared_ptr<Family> of(std::string_view store, std::string_view name, const Updater& updater);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<Family>> families_;
};

/// Counts the adds of a shard. A table is one tensor. An add in several pieces counts once, with its first piece. Any
/// thread.
class Progress {
 public:
  /// @param family  shared by several tensors; null: a family of this tensor alone
  explicit Progress(const Updater& updater, std::shared_ptr<Family> family = nullptr)
      : family_(family != nullptr ? std::move(family) : std::make_shared<Family>(updater)), shared_(family_->shared()) {}

  /// The step of a piece.
  Step step(const Updater& updater, bool begins);
  Mark mark() const;
  /// Continues from a mark. Of another updater's mark, only the count is used.
  void set(const Mark& mark);
  /// The progress within an add, of which more pieces may follow. A checkpoint does not need it, but a copy that
  /// processes the next pieces does.
  WithinAdd within_add() const;
  void set_within_add(const WithinAdd& progress);

 private:
  const std::shared_ptr<Family> family_;
  mutable std::mutex mutex_;
  uint64_t updates_ = 0;
  uint64_t pieces_ = 0;         ///< of this update so far; each draws its own random numbers
  std::vector<double> shared_;  ///< the family's state, the same for all pieces of this update
};

/// The Step of one piece of an add, for each model that the piece meets: set_updater() may just be replacing the model
/// stripe by stripe. A model has an `updater` and, if that counts, a `progress`.
template <typename ModelRef>
class Steps {
 public:
  explicit Steps(bool begins) : begins_(begins) {}
  /// Null if the updater does not count.
  const Step* of(const ModelRef& model) {
    if (model->progress == nullptr) return nullptr;
    if (model_ != model) step_ = model->progress->step(*model->updater, std::exchange(begins_, false));
    model_ = model;
    return &step_;
  }

 private:
  bool begins_;
  ModelRef model_;
  Step step_;
};

}  // namespace mv::shard
