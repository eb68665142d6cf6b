#pragma once
// How far a shard has come with an updater that counts.

#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "table/updater/updater.hpp"

namespace mv::table {

/// As it is saved.
struct Mark {
  uint64_t updates = 0;        ///< adds that were made
  std::vector<double> shared;  ///< Updater::shared()
  bool operator==(const Mark&) const = default;
};

/// A table is one tensor, and a shard counts its adds; an add that comes in several pieces counts with its first one.
/// Any thread.
class Progress {
 public:
  explicit Progress(const Updater& updater) : shared_(updater.shared().begin(), updater.shared().end()) {}

  /// The step of a piece.
  Step step(const Updater& updater, bool begins);
  Mark mark() const;
  /// Goes on from there; a mark of another updater is only a count.
  void set(const Mark& mark);

 private:
  mutable std::mutex mutex_;
  uint64_t updates_ = 0;
  uint64_t pieces_ = 0;  ///< of this update, so far: each draws random numbers of its own
  std::vector<double> shared_;
};

/// The steps of one piece of an add, of the models that it meets: a shard's stripes may just be getting another one. A
/// model has an `updater` and, where that one counts, its `progress`.
template <typename ModelRef>
class Steps {
 public:
  explicit Steps(bool begins) : begins_(begins) {}
  /// Null for one that does not count.
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

}  // namespace mv::table
