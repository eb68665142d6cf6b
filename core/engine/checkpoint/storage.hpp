#pragma once
// The storage of checkpoints: the interface through which the engines access the disk. runtime/ implements it with a
// thread of its own, the simulator in memory.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/examine.hpp"
#include "checkpoint/part_file.hpp"

namespace mv::checkpoint {

/// Asynchronous storage. All calls return at once. Each callback runs once, later, on the loop, and never after the
/// storage is destroyed.
class Storage {
 public:
  template <typename T>
  using Told = std::function<void(base::Result<T>)>;
  using Done = std::function<void(const base::Status&)>;
  /// Cancellation flag, set by the caller.
  using GivenUp = std::shared_ptr<std::atomic<bool>>;

  /// The file of one server to write.
  struct NewFile {
    std::string path;  ///< of the checkpoint
    uint64_t number = 0, server = 0, servers = 1;
    bool again = false;  ///< another process has begun to write it, and may not have stopped
    std::vector<checkpoint::SavedTable> tables;
  };
  struct Found {
    std::string path;  ///< of the checkpoint
    checkpoint::Manifest manifest;
  };
  struct Target {
    checkpoint::TableEntry entry;
    std::shared_ptr<shard::Shard> shard;
  };
  struct Move {
    checkpoint::TableEntry entry;
    std::shared_ptr<shard::Shard> from, to;
  };

  virtual ~Storage() = default;

  // ---- for server 0

  /// Makes the directory of a new checkpoint.
  virtual void begin(const std::string& directory, Told<checkpoint::CheckpointPath> told) = 0;
  /// Takes an incomplete checkpoint over from a lost coordinator, which can neither complete nor discard it from now on.
  /// True if it is complete already. MV_ENOTFOUND: it was removed
  virtual void take_over(const std::string& path, Told<bool> told) = 0;
  /// Writes the manifest, with the current time, when all files are written: the checkpoint is valid from here on. Then
  /// removes all but the newest `keep` checkpoints (0: removes none).
  virtual void complete(const std::string& path, checkpoint::Manifest manifest, uint64_t keep, Done done) = 0;
  /// Removes an incomplete checkpoint.
  virtual void discard(const std::string& path, Done done) = 0;
  /// Finds the checkpoint at `path`, or the newest one in the directory `path`.
  virtual void find(const std::string& path, Told<Found> told) = 0;

  // ---- for every server

  virtual void write(NewFile part, GivenUp given_up, Told<checkpoint::FileEntry> told) = 0;
  /// Checks that a checkpoint is sound. Only the data of this share of the files is read.
  virtual void check(const std::string& path, checkpoint::Share share,
                     Told<checkpoint::Manifest> told) = 0;
  /// Replaces the contents of these shards by the checkpoint's rows for them.
  virtual void restore(const std::string& path, std::vector<Target> targets, Done done) = 0;
  /// Replaces the rows of one shard by those of another, in memory. Each `from` is released as soon as it was moved.
  virtual void move(std::vector<Move> moves, Done done) = 0;
};

}  // namespace mv::checkpoint
