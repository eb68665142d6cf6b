#pragma once
// A disk in memory that all servers share, slow and sometimes full; its content outlives the processes.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/storage.hpp"
#include "random.hpp"
#include "timeline.hpp"

namespace mv::sim {

class Disk {
 public:
  struct Chunk {
    uint64_t first = 0, count = 0;
    std::vector<int64_t> ids;
    std::vector<std::byte> values;
    std::vector<std::vector<std::byte>> states;
    shard::Rows rows() const;
  };
  struct Table {
    checkpoint::TableEntry entry;
    std::vector<Chunk> chunks;
  };
  struct Checkpoint {
    std::map<uint64_t, std::vector<Table>> files;  ///< by server
    std::optional<checkpoint::Manifest> manifest;
  };

  Disk(Timeline& timeline, Random random) : timeline(timeline), random(random) {}
  /// The newest complete checkpoint, or null.
  const Checkpoint* newest() const;

  Timeline& timeline;
  Random random;
  double failing = 0;  ///< the share of jobs that fail
  std::map<uint64_t, Checkpoint> checkpoints;
};

/// One server's access to it, which does one thing after the other, as DiskStorage does. Ends with its process.
class DiskInMemory final : public checkpoint::Storage {
 public:
  /// @param later runs work of this process after a while
  DiskInMemory(Disk& disk, std::function<void(Nanos, std::function<void()>)> later)
      : disk_(disk), later_(std::move(later)) {}

  void begin(const std::string& directory, Told<checkpoint::CheckpointPath> told) override;
  void take_over(const std::string& path, Told<bool> told) override;
  void complete(const std::string& path, checkpoint::Manifest manifest, uint64_t keep, Done done) override;
  void discard(const std::string& path, Done done) override;
  void find(const std::string& path, Told<Found> told) override;
  void write(NewFile part, GivenUp given_up, Told<checkpoint::FileEntry> told) override;
  void check(const std::string& path, checkpoint::Share share, Told<checkpoint::Manifest> told) override;
  void restore(const std::string& path, std::vector<Target> targets, Done done) override;
  void move(std::vector<Move> moves, Done done) override;

 private:
  struct Writing;
  void soon(std::function<void()> work);
  void queue(std::function<void()> work);
  void queue_long(std::function<void()> begin);
  void next();
  void write_on(const std::shared_ptr<Writing>& writing);
  base::Status failure(const char* doing);

  Disk& disk_;
  const std::function<void(Nanos, std::function<void()>)> later_;
  std::deque<std::function<void()>> queued_;  ///< each calls next() when it has ended
  bool is_busy_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace mv::sim
