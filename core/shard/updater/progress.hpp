#pragma once
// How far a shard has come with an updater that counts.

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

/// As it is saved.
struct Mark {
  uint64_t updates = 0;        ///< adds that were made
  std::vector<double> shared;  ///< Updater::shared()
  bool operator==(const Mark&) const = default;
};

/// What tensors that share an optimizer have in common: Updater::shared(). Any thread.
class Family {
 public:
  explicit Family(const Updater& updater) : shared_(updater.shared().begin(), updater.shared().end()) {}

  /// Moves on for an update of one of them, and gives what that one goes by.
  std::vector<double> advance(const Updater& updater, const Turn& turn);
  std::vector<double> shared() const;
  /// Goes on from there, if it is of this updater.
  void set(const std::vector<double>& shared);

 private:
  mutable std::mutex mutex_;
  std::vector<double> shared_;
};

/// The families of a server: one for each store and updater, as long as a key of it has that. Any thread.
class Families {
 public:
  std::shared_ptr<Family> of(std::string_view store, std::string_view name, const Updater& updater);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<Family>> families_;
};

/// A table is one tensor, and a shard counts its adds; an add that comes in several pieces counts with its first one.
/// Any thread.
class Progress {
 public:
  /// @param family  of several tensors; null: of this one
  explicit Progress(const Updater& updater, std::shared_ptr<Family> family = nullptr)
      : family_(family != nullptr ? std::move(family) : std::make_shared<Family>(updater)), shared_(family_->shared()) {}

  /// The step of a piece.
  Step step(const Updater& updater, bool begins);
  Mark mark() const;
  /// Goes on from there; a mark of another updater is only a count.
  void set(const Mark& mark);

 private:
  const std::shared_ptr<Family> family_;
  mutable std::mutex mutex_;
  uint64_t updates_ = 0;
  uint64_t pieces_ = 0;         ///< of this update, so far: each draws random numbers of its own
  std::vector<double> shared_;  ///< the family's, as all pieces of this update go by it
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

}  // namespace mv::shard
