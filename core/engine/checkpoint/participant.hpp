#pragma once
// The part of one server in checkpoints: writes its shards to a file, and restores them.

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/storage.hpp"
#include "engine/table/server/checkpoint_tables.hpp"

namespace mv::checkpoint {

/// Executes the requests of server 0 (coordinator.hpp): Snapshot, Written, Check, Restore. Loop thread only.
class Participant {
 public:
  /// @param storage null: this node keeps no checkpoints
  Participant(const base::Clock& clock, rpc::Server& rpc, table::CheckpointTables& tables, Storage* storage)
      : clock_(clock), rpc_(rpc), tables_(tables), storage_(storage) {}

  void start(const cluster::View& view) { view_ = &view; }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  /// A peer is lost. If it is server 0, its save is given up, and its load is dropped.
  void lost(base::Peer peer);

  /// Statistics of the files that this server has written.
  struct Record {
    uint64_t files = 0, failed = 0;
    uint64_t last_bytes = 0;
    base::Nanos last_took{0};
  };
  const Record& record() const { return record_; }

 private:
  /// A file that is being written, or the outcome of the last one.
  struct Writing {
    uint64_t save = 0;
    base::Peer by = base::kNobody;
    Storage::GivenUp given_up = std::make_shared<std::atomic<bool>>(false);
    bool over = false;
    base::Status status;
    checkpoint::FileEntry file;
  };
  /// A checked checkpoint in memory. Moving it into the tables needs no more reads.
  struct Prepared {
    std::string path;
    base::Peer by = base::kNobody;
    checkpoint::Manifest manifest;
    struct RestoredShard {
      std::shared_ptr<shard::Shard> shard;  ///< holds the rows that were read; after restore(), the table's own shard
      bool exists = false;                  ///< the table exists; otherwise `shard` becomes its shard
    };
    std::vector<RestoredShard> parts;  ///< in the order of the manifest's tables
    std::vector<Storage::Target> targets() const;
  };

  void snapshot(const rpc::Asked& asked, const wire::Snapshot& request, std::span<const std::byte> clocks);
  void written(const rpc::Asked& asked, const wire::Written& request);
  void check(const rpc::Asked& asked, const wire::Check& request);
  base::Status make_parts(Prepared& prepared);
  void restore(const rpc::Asked& asked, const wire::Restore& request);
  base::Status adopt(const Prepared& prepared);
  static base::Status was_destroyed(const std::string& table);

  void note(const base::Result<checkpoint::FileEntry>& file, base::Nanos took);

  const base::Clock& clock_;
  rpc::Server& rpc_;
  table::CheckpointTables& tables_;
  Storage* const storage_;
  const cluster::View* view_ = nullptr;
  wire::FrameBuilder builder_;
  std::shared_ptr<Writing> writing_;
  std::shared_ptr<Prepared> prepared_;
  Record record_;
};

}  // namespace mv::checkpoint
