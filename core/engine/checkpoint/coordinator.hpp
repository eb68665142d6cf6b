#pragma once
// The coordinator of checkpoints, on the process that serves the part of server 0: collects the requests of the workers, and directs all
// servers.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/checkpoint/clocks.hpp"
#include "engine/checkpoint/participant.hpp"
#include "engine/checkpoint/served_parts.hpp"
#include "engine/checkpoint/storage.hpp"
#include "engine/cluster/view.hpp"
#include "engine/cluster/wait.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

namespace mv::checkpoint {

/// Runs one save or load at a time. It starts when all live workers have requested it, as in a barrier. If a worker is
/// lost while others wait, each survivor gets the error once, now or at its next request, so all survivors stay in
/// step.
///
///   save   make the directory; snapshots on all servers; workers continue; all servers write their files; manifest
///   load   read the manifest; all servers check their parts and read them into memory; then the tables take them
///
/// With back-ups, a job that loses a server starts again with the server that takes over, unless it is a save whose
/// workers have already continued: then the server that takes over writes the file from the snapshot that it has kept
/// as a back-up (held_save.hpp). When the coordinator is lost, the workers ask its successor (client.hpp), which resumes
/// a save that has come so far. Some may have received the answer before. Each worker therefore tells the successor
/// which of its calls have ended and how, and a call that has ended for one worker ends in the same way for all. Loop
/// thread only.
class Coordinator {
 public:
  /// @param storage null: this node keeps no checkpoints
  Coordinator(const base::Clock& clock, rpc::Client& client, rpc::Server& server, ServedParts& served, Storage* storage)
      : clock_(clock), client_(client), server_(server), served_(served), storage_(storage) {}

  void start(const cluster::View& view) { view_ = &view; }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload);
  /// Answers a request that waits here with MV_ETIMEOUT and the names of the missing processes.
  void on_cancel(const rpc::Asked& asked);
  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  /// The view has changed: other servers may serve the parts.
  void servers_changed();
  /// The master is lost, so nobody decides which server takes over the part of a lost one.
  void master_lost(const base::Status& why);
  void master_found() { no_master_ = {}; }

  /// A save or a load is in progress, or not all of its workers know that it has ended.
  bool is_busy() const {
    return job_ != nullptr || std::ranges::any_of(endings_, [](const auto& entry) { return !entry.second.may_be_forgotten(); });
  }
  /// The workers that wait in a save or load, and the workers or servers that they wait for.
  std::vector<cluster::Wait> waits() const;

  base::Nanos next_deadline() const;
  void tick();

 private:
  /// The request of one worker.
  struct Request {
    rpc::Asked asked;
    bool loads = false;
    std::string path;  ///< the directory to save to, or the checkpoint to load
    uint64_t keep = 0;
    uint64_t call = 0;  ///< 0: a save of its own
    bool again = false;
    std::string resumed = {};  ///< the path of the checkpoint that a lost coordinator was saving; empty: it had not come so far
    uint64_t number = 0;       ///< of that checkpoint
    Clocks clocks = {};
    base::Nanos since{0};
    bool same_as(const Request& other) const { return loads == other.loads && path == other.path && keep == other.keep; }
  };
  /// The last call that has ended for a worker, as the worker reported with its next call.
  struct Ended {
    uint64_t last = 0;
    mv_status status = MV_OK;
    std::set<uint64_t> open = {};  ///< calls that have not ended
  };
  struct ServerPart {
    base::Peer server = base::kNobody;
    bool over = false;   ///< this server has finished its part, or failed
    bool asked = false;  ///< a request to this server is not answered yet
    std::function<void()> ask_again = nullptr;  ///< the part has moved, or its server is lost, and its new server is to be asked
    checkpoint::FileEntry file;
  };
  enum class Phase { kPlace, kSnapshots, kWriting, kEnding, kFinding, kChecking, kRestoring, kAwaitingServers };
  struct Job {
    uint64_t id = 0;
    Phase phase = Phase::kPlace;
    bool loads = false;
    bool resumes = false;      ///< a save of a lost coordinator; its workers have continued
    bool is_taken_over = true;  ///< this process has claimed the checkpoint
    bool is_complete = false;  ///< it was complete then
    bool lost_server = false;  ///< this is the error
    std::string asked_path;    ///< the directory to save to, or the checkpoint to load
    std::string path;          ///< of the checkpoint
    uint64_t number = 0, keep = 0, call = 0;
    std::vector<rpc::Asked> askers;  ///< requests not answered yet
    std::vector<base::Peer> workers;
    Clocks clocks;
    base::PayloadRef written_clocks;  ///< a load: the serialized clocks for the workers
    std::vector<checkpoint::TableEntry> tables;
    std::vector<ServerPart> parts;
    base::Status error;  ///< the first one
    bool needs_no_file() const { return is_complete || !error.ok(); }
  };
  /// The outcome of a save, kept for the workers that have not polled it yet.
  struct Ending {
    std::string path;
    uint64_t number = 0, call = 0;
    bool resumed = false;
    bool over = false;
    base::Status status;
    std::set<base::Peer> untold;
    /// Its workers can hear of it from another coordinator.
    bool may_be_forgotten() const { return over && resumed; }
  };
  using Heard = std::function<void(size_t server, const base::Status&, const wire::Message*)>;
  using Question = std::function<base::Frame(wire::FrameBuilder&, uint32_t part)>;

  void ask_for(Request request, bool alone);
  void saved(const rpc::Asked& asked, const wire::Saved& request);
  void calls_ended(base::Peer worker, const wire::CallsEnded& ended);
  bool joins(const Request& request);
  void resume(const Request& request);
  void taken_over(const base::Result<bool>& complete);
  void settle();
  void end_what_has_ended();
  bool has_ended(const Request& request);
  void begin(std::vector<Request> requests);
  void start_job();
  void add_parts();
  bool may_begin_again() const;
  bool may_follow(size_t server) const;
  void follow(size_t server, std::function<void()> ask_again);
  void await_servers();
  void begin_again();
  void give_up(const base::Status& why);
  void set_phase(Phase phase);
  void ask(size_t server, const Question& question, Heard heard);
  void follow_moved();
  void ask_all(const Question& question, void (Coordinator::*next)());
  void note_failure(size_t server, const base::Status& status);
  void fail_askers(const base::Status& why);
  std::vector<base::Peer> awaited_workers() const;
  std::vector<base::Peer> awaited_servers() const;
  std::string missing_workers() const;
  std::string missing_servers() const { return view_->names(awaited_servers()); }
  bool is_here(const cluster::Member& worker) const { return worker.state == cluster::MemberState::kHere; }
  // a save
  void take_snapshots(base::Result<checkpoint::CheckpointPath> place);
  Question snapshot_of(base::PayloadRef clocks, bool resumes) const;
  void snapshots_taken();
  void tell_saving();
  void answer_saving(const rpc::Asked& asked, uint64_t save, const Ending& ending);
  void poll();
  void heard_of_file(size_t server, const base::Status& status, const wire::Message* answer);
  void end_save_if_over();
  void end_save();
  void save_over(const base::Status& status);
  // a load
  void check(base::Result<Storage::Found> found);
  void checked();
  void restore(bool forget, void (Coordinator::*next)());
  void look_for_newer();
  void restored();
  void load_over();

  const base::Clock& clock_;
  rpc::Client& client_;
  rpc::Server& server_;
  ServedParts& served_;
  Storage* const storage_;
  wire::FrameBuilder builder_;
  const cluster::View* view_ = nullptr;
  base::Status no_master_;
  std::map<base::Peer, std::deque<Request>> waiting_;         ///< a worker with several threads may wait several times
  std::map<base::Peer, Ended> ended_;
  std::map<base::Peer, std::deque<base::Status>> untold_;     ///< unreported losses; each fails one call
  std::deque<Request> alone_;                                 ///< saves in which no other worker takes part
  std::deque<Request> resumes_;                               ///< saves that a lost coordinator has begun
  std::shared_ptr<Job> job_;
  uint64_t jobs_ = 0;
  std::map<uint64_t, Ending> endings_;
  base::Nanos next_poll_ = base::kNever, poll_wait_{0};
  base::Nanos waits_since_ = base::kNever;  ///< when the first request of waiting_ arrived
  base::Nanos phase_since_{0}, next_notice_ = base::kNever;
};

}  // namespace mv::checkpoint
