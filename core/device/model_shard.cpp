#include "device/model_shard.hpp"

namespace mv::device {

shard::UpdaterSpec ModelShard::updater() const {
  const std::lock_guard lock(mutex_);
  return model()->spec;
}

shard::Mark ModelShard::mark() const {
  const std::lock_guard lock(mutex_);
  return model()->progress != nullptr ? model()->progress->mark() : shard::Mark();
}

void ModelShard::set_mark(const shard::Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (model()->progress != nullptr) model()->progress->set(mark);
}

shard::WithinAdd ModelShard::within_add() const {
  const std::lock_guard lock(mutex_);
  return model()->progress != nullptr ? model()->progress->within_add() : shard::WithinAdd();
}

void ModelShard::set_within_add(const shard::WithinAdd& progress) {
  const std::lock_guard lock(mutex_);
  if (model()->progress != nullptr) model()->progress->set_within_add(progress);
}

}  // namespace mv::device
