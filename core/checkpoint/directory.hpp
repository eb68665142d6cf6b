#pragma once
// A directory of checkpoints: lists, creates, completes, finds and removes them.

#include <string>
#include <vector>

#include "checkpoint/claim.hpp"
#include "checkpoint/manifest.hpp"

namespace mv::checkpoint {

struct CheckpointPath {
  uint64_t number = 0;
  std::string path;
  bool whole = false;  ///< it has a manifest
  /// Set by begin_checkpoint(). Keep it until the checkpoint is complete or removed.
  std::shared_ptr<Claim> claim = nullptr;
};

/// The checkpoints in a directory, by number. MV_ENOTFOUND if there is no such directory.
base::Result<std::vector<CheckpointPath>> list_checkpoints(const std::string& directory);
/// Makes the directory of a new checkpoint, and `directory` itself if it is missing, and claims the new one. Missing directories above it
/// are made, too, which is logged: the path may be mistyped, or a disk not mounted.
base::Result<CheckpointPath> begin_checkpoint(const std::string& directory);
/// Claims an unfinished checkpoint whose process is lost. It is as it was, and may be whole. MV_ENOTFOUND: it was removed.
base::Result<CheckpointPath> take_over_checkpoint(const std::string& path);
/// Writes the manifest. The checkpoint is valid from here on.
base::Status complete_checkpoint(const std::string& path, const Manifest& manifest);
/// Removes all whole checkpoints but the `keep` newest (0: removes none) and number `spared`. Also removes unfinished
/// ones that are older than the newest whole one, if they are abandoned: another job may be writing one.
base::Status prune_checkpoints(const std::string& directory, uint64_t keep, uint64_t spared = 0);
/// Removes a checkpoint and all its files. It is invalid as soon as this begins.
base::Status remove_checkpoint(const std::string& path);
/// Returns `path` if it is a checkpoint, or the newest whole checkpoint if it is a directory of them. MV_ENOTFOUND if
/// there is none, MV_EINVAL for a checkpoint without a manifest.
base::Result<std::string> find_checkpoint(const std::string& path);
base::Result<Manifest> read_manifest(const std::string& path);

/// The directory that contains `path`.
std::string parent_of(const std::string& path);

}  // namespace mv::checkpoint
