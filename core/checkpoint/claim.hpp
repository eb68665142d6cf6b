#pragma once
// Whose an unfinished checkpoint is: several jobs may save into one directory.

#include <memory>
#include <string>

#include "base/result.hpp"

namespace mv::checkpoint {

/// The file in a checkpoint that is locked while it is being written.
inline constexpr const char* kClaimName = "writing.lock";

/// Shows other jobs that a checkpoint is being written: a locked file in its directory, which says on which machine. The kernel lets go of the
/// lock when the process ends, however it ends.
class Claim {
 public:
  /// For a directory that was just made. Where the file system has no locks, others judge by the checkpoint's age.
  static base::Result<std::shared_ptr<Claim>> take(const std::string& path);
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  /// The file stays; it goes with the checkpoint, or when that is complete.
  ~Claim();

 private:
  explicit Claim(int fd) : fd_(fd) {}
  const int fd_;
};

/// Whether nobody is writing the unfinished checkpoint at `path` any more. That is known where the machine that it was begun on is this one, and
/// its lock is free; of other machines' it is believed once nothing in it has changed for an hour.
bool is_abandoned(const std::string& path);

}  // namespace mv::checkpoint
