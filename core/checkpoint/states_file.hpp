#pragma once
// A file of the optimizer states of a store: safetensors, with a tensor for each state of each key.

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace mv::checkpoint {

struct KeyStates {
  std::string key;
  mv_dtype dtype = MV_F32;  ///< of the values; states have its storage dtype
  std::vector<uint64_t> shape;
  std::string optimizer;                      ///< its name
  std::optional<shard::UpdaterSpec> updater;  ///< the whole optimizer, if it is dumped
  std::vector<shard::Mark> marks;             ///< its progress on each server, if it is dumped
  std::vector<std::vector<std::byte>> states;
  std::vector<std::vector<std::byte>> residuals;  ///< of gradient compression, by sender
};

struct StatesFile {
  bool dumped = false;                          ///< the file contains the optimizer
  std::optional<shard::UpdaterSpec> optimizer;  ///< dumped: the one for future keys
  std::vector<KeyStates> keys;
};

/// Writes the file atomically.
base::Status write_states(const std::string& path, const StatesFile& file);
/// Reads a file of states. MV_EINVAL with the reason if it is damaged or another kind of file.
base::Result<StatesFile> read_states(const std::string& path);

}  // namespace mv::checkpoint
