#pragma once
// A server's part in checkpoints: writes its shards down, and takes them back.

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/storage.hpp"
#include "engine/table/server/server.hpp"

namespace mv::checkpoint {

/// Does what server 0 (coordinator.hpp) asks of every server: Snapshot, Written, Check, Restore. Loop thread only.
class Participant {
 public:
  /// @param storage null: this node keeps no checkpoints
  Participant(const base::Clock& clock, rpc::Server& rpc, table::Server& tables, Storage* storage)
      : clock_(clock), rpc_(rpc), tables_(tables), storage_(storage) {}

  void start(const cluster::View& view) { view_ = &view; }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  /// Nobody will ask for what this one has begun.
  void lost(base::Peer peer);

  /// The files that this server has written.
  struct Record {
    uint64_t files = 0, failed = 0;
    uint64_t last_bytes = 0;
    base::Nanos last_took{0};
  };
  const Record& record() const { return record_; }

 private:
  /// A file on its way to the disk, and what became of it until the next one.
  struct Writing {
    uint64_t save = 0;
    base::Peer by = base::kNobody;
    Storage::GivenUp given_up = std::make_shared<std::atomic<bool>>(false);
    bool over = false;
    base::Status status;
    checkpoint::FileEntry file;
  };
  /// A checkpoint that was found sound, in memory: nothing can go wrong any more when the tables take it.
  struct Prepared {
    std::string path;
    base::Peer by = base::kNobody;
    checkpoint::Manifest manifest;
    struct RestoredShard {
      std::shared_ptr<shard::Shard> shard;  ///< what was read; from restore() on, the part of the table that takes it
      bool exists = false;                  ///< there is such a table; else `shard` becomes its part
    };
    std::vector<RestoredShard> parts;  ///< by table
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
  table::Server& tables_;
  Storage* const storage_;
  const cluster::View* view_ = nullptr;
  wire::FrameBuilder builder_;
  std::shared_ptr<Writing> writing_;
  std::shared_ptr<Prepared> prepared_;
  Record record_;
};

}  // namespace mv::checkpoint
