#pragma once
// Whether a checkpoint is whole and sound.

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/part_file.hpp"

namespace mv::checkpoint {

/// Which files' data is to be compared with its checksums: every `of`-th, from `index` on. Headers are looked at in
/// any case.
struct Share {
  uint64_t of = 1, index = 0;
};

struct Examined {
  std::optional<Manifest> manifest;
  std::vector<std::optional<PartFile>> files;  ///< as in the manifest; none where it can't be read
  std::vector<std::string> damage;             ///< sentences; none: it is sound
  base::Status failed;                         ///< what kept this process from reading all of it, if anything did; among the damage, too
};

/// Looks at the checkpoint at `path`, which has a manifest. Never fails: what is wrong is damage.
Examined examine(const std::string& path, const Share& share, const std::atomic<bool>& given_up);
/// A sound one, else MV_EINVAL with the first damage; what says nothing about the checkpoint, as having no more descriptors, is itself the
/// error.
base::Result<Examined> open_sound(const std::string& path, const Share& share, const std::atomic<bool>& given_up);

}  // namespace mv::checkpoint
