#pragma once
// The Node there is: engines on a loop, reached from callers' threads.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "engine/member.hpp"
#include "io/http/http.hpp"
#include "io/loop/loop.hpp"
#include "node/archive.hpp"
#include "node/call.hpp"
#include "node/figures.hpp"
#include "node/mapping.hpp"
#include "node/node.hpp"
#include "node/rendezvous.hpp"
#include "node/router.hpp"
#include "tensor/heap.hpp"

namespace mv::onehost {
class Seat;
}

namespace mv::node {

class MemberNode final : public Node, private io::Flusher {
 public:
  explicit MemberNode(const Settings& settings) : settings_(settings), trace_(settings.events_kept()) {}
  ~MemberNode() override;

  base::Status join() override;
  const Identity& identity() const override { return identity_; }
  base::Status shutdown() override;
  void abandon_after_fork() noexcept override;

  base::Result<std::string> metrics_text() override;
  base::Result<std::string> trace_text() override;

  Started barrier(const CallOptions& options, Fence fence) override;
  base::Result<std::vector<TableRef>> create_tables(std::vector<NewTable> tables) override;
  base::Result<TableRef> create_table(TableSpec spec, ConstData initial) override;
  base::Result<TableRef> open_table(const std::string& name) override;
  base::Result<std::vector<TableSpec>> list_tables() override;
  base::Result<std::vector<PeerReport>> examine_peers() override;
  base::Result<doctor::Tuning> tune() override;
  base::Result<std::string> status(bool json) override;

  Started save_checkpoint(const std::string& directory, uint64_t keep, const CallOptions& options) override;
  Started load_checkpoint(const std::string& path, const CallOptions& options) override;

  CallRef group(const CallOptions& options) override { return make_call(options, false); }
  void close_group(const CallRef& group, std::function<base::Status()> finish) override {
    group->close_group(std::move(finish));
  }

  base::Status add_many(std::span<const ManyAdd> adds, const CallOptions& options) override;
  base::Status get_many(std::span<const ManyGet> gets, const CallOptions& options) override;

  base::Result<GroupRef> open_group(std::vector<int64_t> workers, const CallOptions& options) override;
  std::vector<int64_t> workers_here() override;

  Started send_command(int64_t head, const std::string& body, const CallOptions& options) override;
  void set_controller(Controller controller, std::function<void(int64_t)> waiting) override;
  std::optional<Command> next_command() override;
  void command_done(uint64_t number, const base::Status& outcome) override;
  bool workers_gone() const override { return workers_gone_; }

  base::Status wait(const CallRef& call, base::Nanos timeout, bool* alive) override;
  bool done(const CallRef& call) const override { return call->done() || defect() != nullptr; }
  base::Status result(const CallRef& call) const override { return call->done() ? call->status() : ended(); }
  void release(const CallRef& call) override;
  base::Status cancel(const CallRef& call) override;

  base::Result<std::vector<int64_t>> poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until) override;
  int event_fd() const override { return finished_.event_fd(); }
  void callbacks_due(bool any) override;
  base::Status wait_until(const std::function<bool()>& done, base::Nanos timeout) override;
  void wake() override { loop_.wake_waiters(); }

  // ---- for tables

  const Settings& settings() const { return settings_; }
  /// The absolute deadline that options ask for.
  base::Nanos deadline(const CallOptions& options, bool gated) const;
  CallRef make_call(const CallOptions& options, bool gated) { return std::make_shared<Call>(finished_, options, deadline(options, gated)); }
  /// Begins a call on the loop, runs `meanwhile` on this thread if there is one, and waits if it is a blocking call.
  Started run(const CallRef& call, const CallOptions& options, ps::Request request, const std::function<void()>& meanwhile);
  /// Fire-and-forget: begins it and returns.
  void forget(ps::Request request, const std::function<void()>& meanwhile);
  void forget_small(const ps::TableViewRef& table, size_t server, base::Frame frame, uint64_t reserved);
  /// Blocks while too many bytes of asynchronous calls are under way; gives what is to be handed to the call.
  base::Result<uint64_t> reserve(uint64_t bytes, const CallOptions& options);
  /// Of a call that was not begun after all.
  void give_back(uint64_t reserved) { member_->tables().in_flight().fetch_sub(reserved, std::memory_order_relaxed); }
  /// A copy of what an asynchronous call sends: a large one in memory that is used again, where servers of this machine read it themselves.
  base::PayloadRef snapshot(std::span<const std::byte> bytes);
  /// A group's, whose waits end when this node breaks down.
  void know_seat(const std::shared_ptr<onehost::Seat>& seat);
  /// Begins something of an engine's on the loop, under a call that it will complete, and waits if it is a blocking call.
  Started start(const CallRef& call, const CallOptions& options, io::Task begin);
  /// Runs `work` on the loop and waits for it.
  void on_loop(const std::function<void()>& work);
  /// on_loop() for what changes nothing there. Throws std::bad_alloc where `read` does.
  void read_on_loop(const std::function<void()>& read);
  std::shared_ptr<table::Shard> own_shard(const ps::TableView& table);
  /// What is to be mapped of a table; null where nothing is. `own`: a server that is this process, or SIZE_MAX.
  MappingRef map(const ps::TableViewRef& table, size_t own);
  /// Why waits end that nothing else ends: the node has broken down, or shuts down.
  base::Status ended() const;
  engine::Member& member() { return *member_; }
  /// How messages to a peer go. Loop thread only.
  std::optional<Router::Reach> way_by(base::Peer peer) const { return router_->reach(peer); }
  io::Loop& loop() { return loop_; }

 private:
  struct Outcome;

  base::Status serve_metrics();
  void learn_ranks();
  void take_peers(Figures& figures);
  Figures take_figures();
  io::HttpAnswer answer(const std::string& path);
  void share_memory();
  std::vector<MappingRef> mappings();
  base::Status set_up();
  base::Status make_roads(cluster::Self& self);
  base::Status meet();
  base::Status listen(cluster::Self& self);
  base::Status listen_inproc(cluster::Self& self);
  base::Result<std::string> listen_at(const std::string& wished);
  base::Status wait_until_ready();
  status::Way way_to(base::Peer peer) const;
  void take_identity(const cluster::View& view);
  base::Status ask_peers(std::map<base::Peer, base::Nanos>& shortest);
  PeerReport report_on(const cluster::Member& member);
  void save_by_clock();
  void withdraw(const CallRef& call, mv_status code);
  void rearm();
  void flush() override;
  void stop_roads();
  void tell_breakdown(const base::Status& why) noexcept;
  Started wait_blocking(const CallRef& call, const CallOptions& options, io::Task begin);
  /// The second half of a change: what it throws leaves the change half made, and breaks the node down.
  void no_way_back(const std::function<void()>& work);
  base::Status wait_for(const std::function<bool()>& done, base::Nanos until);
  base::Nanos creation_deadline(const std::string& name);
  base::Result<std::vector<TableRef>> finish_opening(const std::shared_ptr<Outcome>& outcome, const std::string& creating);

  Settings settings_;
  Identity identity_;
  io::Loop loop_;
  FinishedList finished_{[this] {
    if (!loop_.driven_by_me()) loop_.wake_waiters();  // its driver looks by itself
  }};
  base::TraceRing trace_;
  const bool watched_ = trace_.on() || !settings_.metrics.empty();  ///< times are taken
  std::unique_ptr<Router> router_;
  std::unique_ptr<Publication> publication_;  ///< rank 0's address, until all have come
  DiskArchive archive_{loop_};
  std::unique_ptr<engine::Member> member_;
  std::atomic<bool> ready_{false}, failed_{false}, workers_gone_{false};
  base::Status failure_;
  base::Nanos armed_ = base::kNever;
  std::mutex mappings_mutex_;
  std::vector<std::weak_ptr<Mapping>> mappings_;
  size_t mappings_swept_ = 0;  ///< how many there were when those of closed handles were last removed
  std::mutex seats_mutex_;
  std::vector<std::weak_ptr<onehost::Seat>> seats_;
  std::mutex creations_mutex_;
  std::map<std::string, base::Nanos> creations_;  ///< deadlines, by the name of the first table
  std::atomic<uint64_t> unnamed_{0};
  tensor::Heap snapshots_;
  std::atomic<bool> told_of_limit_{false};
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool has_met_ = false;
  std::unique_ptr<io::HttpServer> http_;
  std::unordered_map<base::Peer, uint32_t> ranks_;  ///< also of those whose place another has taken
  bool loop_runs_ = false;
  bool leaving_ = false;
  std::atomic<bool> left_{false};
  base::Status left_with_;
};

}  // namespace mv::node
