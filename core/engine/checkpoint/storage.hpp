#pragma once
// Where checkpoints are kept: the engines' door to the disk. runtime/ has one with a thread of its own, the simulator
// one in memory.

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

/// All calls return at once; what is told is told later, once, on the loop, and never after the storage's end.
class Storage {
 public:
  template <typename T>
  using Told = std::function<void(base::Result<T>)>;
  using Done = std::function<void(const base::Status&)>;
  /// Set by the asker: the work is not wanted any more.
  using GivenUp = std::shared_ptr<std::atomic<bool>>;

  /// One server's file to be.
  struct NewFile {
    std::string path;  ///< of the checkpoint
    uint64_t number = 0, server = 0, servers = 1;
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

  /// Makes the place of a new checkpoint.
  virtual void begin(const std::string& directory, Told<checkpoint::CheckpointPath> told) = 0;
  /// All files are there: from here on it counts, and older ones may go. The manifest's time is filled in.
  virtual void complete(const std::string& path, checkpoint::Manifest manifest, uint64_t keep, Done done) = 0;
  /// Removes what there is of it.
  virtual void discard(const std::string& path, Done done) = 0;
  /// `path` is a checkpoint, or a directory of them.
  virtual void find(const std::string& path, Told<Found> told) = 0;

  // ---- for every server

  virtual void write(NewFile part, GivenUp given_up, Told<checkpoint::FileEntry> told) = 0;
  /// Whether it is sound; the data of this share of the files is read.
  virtual void check(const std::string& path, checkpoint::Share share,
                     Told<checkpoint::Manifest> told) = 0;
  /// Puts the rows that the checkpoint has for these shards into them, and nothing else stays there.
  virtual void restore(const std::string& path, std::vector<Target> targets, Done done) = 0;
  /// From memory to memory: the rows of one shard replace those of another. `from` is let go as soon as it was moved.
  virtual void move(std::vector<Move> moves, Done done) = 0;
};

}  // namespace mv::checkpoint
