#pragma once
// Optimizers' states of a store in a file of their own: safetensors, a tensor for each state of each key.

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace mv::checkpoint {

struct KeyStates {
  std::string key;
  mv_dtype dtype = MV_F32;  ///< of the values; states are of its storage dtype
  std::vector<uint64_t> shape;
  std::string optimizer;               ///< its name
  std::optional<shard::UpdaterSpec> updater;  ///< all of it, where the optimizer is dumped too
  std::vector<shard::Mark> marks;             ///< the same: how far it has come on each server
  std::vector<std::vector<std::byte>> states;
  std::vector<std::vector<std::byte>> residuals;  ///< what gradient compression has left out, by sender
};

struct StatesFile {
  bool dumped = false;                   ///< with the optimizer
  std::optional<shard::UpdaterSpec> optimizer;  ///< dumped: for keys to come
  std::vector<KeyStates> keys;
};

/// Whole or not at all.
base::Status write_states(const std::string& path, const StatesFile& file);
/// MV_EINVAL with what is wrong with it: damage, or that it is none of ours.
base::Result<StatesFile> read_states(const std::string& path);

}  // namespace mv::checkpoint
