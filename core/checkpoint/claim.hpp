#pragma once
// The ownership of unfinished checkpoints: several jobs may save into one directory.

#include <memory>
#include <string>

#include "base/result.hpp"

namespace mv::checkpoint {

/// The file in a checkpoint that is locked while it is being written.
inline constexpr const char* kClaimName = "writing.lock";

/// A locked file in the directory of a checkpoint that is being written. It shows this to other jobs, and names the
/// machine. The kernel releases the lock when the process ends, in whatever way.
class Claim {
 public:
  /// Claims a directory that was just made. Without locks in the file system, other jobs judge by the age of the
  /// checkpoint.
  static base::Result<std::shared_ptr<Claim>> take(const std::string& path);
  /// Claims a directory whose process is lost. If that lives, its claim does not count any more.
  static base::Result<std::shared_ptr<Claim>> take_over(const std::string& path);
  /// Whether this claim of the directory still counts.
  bool counts(const std::string& path) const;
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  /// Releases the lock. The file stays until the checkpoint is complete or removed.
  ~Claim();

 private:
  explicit Claim(int fd) : fd_(fd) {}
  const int fd_;
};

/// True if no process writes the unfinished checkpoint at `path` any more. This is certain if it was begun on this
/// machine, since its last boot, and its lock is free. Otherwise it is assumed once nothing in the checkpoint has
/// changed for an hour.
bool is_abandoned(const std::string& path);

}  // namespace mv::checkpoint
