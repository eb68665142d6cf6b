#pragma once
// A directory of checkpoints: which there are, how a new one comes to be and old ones go.

#include <string>
#include <vector>

#include "checkpoint/claim.hpp"
#include "checkpoint/manifest.hpp"

namespace mv::checkpoint {

struct CheckpointPath {
  uint64_t number = 0;
  std::string path;
  bool whole = false;  ///< it has a manifest
  std::shared_ptr<Claim> claim = nullptr;  ///< of begin_checkpoint(): to be kept until the checkpoint is complete or removed
};

/// What lies in a directory, by number. MV_ENOTFOUND if there is no such directory.
base::Result<std::vector<CheckpointPath>> list_checkpoints(const std::string& directory);
/// Makes the directory of a new one, and `directory` itself where it is missing, and claims it.
base::Result<CheckpointPath> begin_checkpoint(const std::string& directory);
/// Writes the manifest: from here on it counts.
base::Status complete_checkpoint(const std::string& path, const Manifest& manifest);
/// Removes all whole ones but the `keep` newest (0: none) and number `spared`; and of the unfinished ones from before the newest whole one those
/// that are abandoned: another job may be writing one.
base::Status prune_checkpoints(const std::string& directory, uint64_t keep, uint64_t spared = 0);
/// Removes one, with all that checkpoints consist of. It does not count any more as soon as this begins.
base::Status remove_checkpoint(const std::string& path);
/// `path`, if it is a checkpoint; the newest whole one, if it is a directory of them. MV_ENOTFOUND if there is none,
/// MV_EINVAL for one without a manifest.
base::Result<std::string> find_checkpoint(const std::string& path);
base::Result<Manifest> read_manifest(const std::string& path);

/// The directory that a path lies in.
std::string parent_of(const std::string& path);

}  // namespace mv::checkpoint
