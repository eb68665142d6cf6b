#pragma once
// A server's share of checkpoints: writes the shards of the parts that it serves to files, and restores them.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/served_parts.hpp"
#include "engine/checkpoint/storage.hpp"

namespace mv::checkpoint {

/// A participant's answer about a part that another process serves now.
inline constexpr mv_status kMoved = MV_ECANCELED;

/// Executes the requests of the coordinator (coordinator.hpp): Snapshot, Written, Check, Restore. With back-ups, a
/// request may wait here for the view that names the coordinator and the servers of the parts, and until a copy of the
/// values is complete. Loop thread only.
class Participant {
 public:
  /// @param storage null: this node keeps no checkpoints
  Participant(const base::Clock& clock, rpc::Server& rpc, ServedParts& parts, Storage* storage)
      : clock_(clock), rpc_(rpc), parts_(parts), storage_(storage) {}

  void start(const cluster::View& view) { view_ = &view; }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  /// A peer is lost. If it is the coordinator, its load is dropped, and its save is abandoned unless another process may
  /// become the coordinator.
  void lost(base::Peer peer);
  /// The others may have declared this process lost, and write the files themselves: it gives up those that it is writing.
  void cut_off();
  /// A file is being written, the coordinator does not know yet that it is complete, or a checkpoint is being loaded.
  bool is_busy() const;
  base::Nanos next_deadline() const { return look_at_; }
  void tick();

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
    Writing(uint64_t save, uint64_t number, std::string path, base::Peer by) : save(save), number(number), path(std::move(path)), by(by) {}
    uint64_t save, number;
    std::string path;  ///< of the checkpoint
    base::Peer by;
    bool is_orphaned = false;  ///< the coordinator is lost, and there is no other one yet
    bool is_kept = false;      ///< not begun: the values are kept here since this process was a back-up
    Storage::GivenUp given_up = std::make_shared<std::atomic<bool>>(false);
    bool over = false;
    bool told = false;  ///< the coordinator knows that it has ended
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

  struct Duty {
    std::shared_ptr<Writing> writing;
    std::shared_ptr<Prepared> prepared;
  };
  struct Held {
    rpc::Asked asked;
    std::vector<std::byte> header, payload;
  };
  /// A request for a snapshot that is taken here, and not by the back-ups yet.
  struct AwaitsBackups {
    rpc::Asked asked;
    uint64_t part;
  };

  bool execute(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  bool snapshot(const rpc::Asked& asked, const wire::Snapshot& request, std::span<const std::byte> clocks);
  void resume(const rpc::Asked& asked, const wire::Snapshot& request);
  void write(uint64_t part, const std::shared_ptr<Writing>& writing, std::vector<checkpoint::SavedTable> tables);
  void write_kept(uint64_t part, const std::shared_ptr<Writing>& writing);
  void answer_backed_up();
  bool is_writing(const rpc::Asked& asked, const wire::Written& request) const;
  void written(const rpc::Asked& asked, const wire::Written& request);
  void check(const rpc::Asked& asked, const wire::Check& request);
  static base::Status make_parts(table::CheckpointTables& tables, Prepared& prepared);
  void restore(const rpc::Asked& asked, const wire::Restore& request);
  void moved(const rpc::Asked& asked, uint64_t part, const Prepared& prepared, const base::Status& status);
  static base::Status adopt(table::CheckpointTables& tables, const Prepared& prepared);
  static base::Status was_destroyed(const std::string& table);

  void note(const base::Result<checkpoint::FileEntry>& file, base::Nanos took);

  const base::Clock& clock_;
  rpc::Server& rpc_;
  ServedParts& parts_;
  Storage* const storage_;
  const cluster::View* view_ = nullptr;
  wire::FrameBuilder builder_;
  std::map<uint64_t, Duty> duties_;  ///< by part
  std::vector<Held> held_;           ///< requests that can't be executed yet
  std::vector<AwaitsBackups> await_backups_;
  base::Nanos look_at_ = base::kNever;
  Record record_;
};

}  // namespace mv::checkpoint
