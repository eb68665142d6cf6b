#pragma once
// Checks whether a checkpoint is whole and sound.

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/part_file.hpp"

namespace mv::checkpoint {

/// The files whose data is compared with its checksums: every `of`-th, from `index` on. Headers are always checked.
struct Share {
  uint64_t of = 1, index = 0;
};

struct Examined {
  std::optional<Manifest> manifest;
  std::vector<std::optional<PartFile>> files;  ///< in the manifest's order; nullopt for unreadable files
  std::vector<std::string> damage;             ///< sentences; empty if the checkpoint is sound
  base::Status failed;                         ///< first system error while reading, if any; also listed in `damage`
};

/// Examines the checkpoint at `path`, which has a manifest. Never fails: every error is listed as damage.
Examined examine(const std::string& path, const Share& share, const std::atomic<bool>& given_up);
/// Examines a checkpoint and returns it if it is sound, else MV_EINVAL with the first damage. A system error that says
/// nothing about the checkpoint, such as too few descriptors, is returned as it is.
base::Result<Examined> open_sound(const std::string& path, const Share& share, const std::atomic<bool>& given_up);

}  // namespace mv::checkpoint
