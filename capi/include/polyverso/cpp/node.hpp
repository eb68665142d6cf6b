/// Nodes and checkpoints. Part of polyverso.hpp.
#ifndef POLYVERSO_CPP_NODE_HPP
#define POLYVERSO_CPP_NODE_HPP

#include <polyverso/cpp/base.hpp>

#include <functional>
#include <memory>
#include <optional>

namespace polyverso {

/// The version of the loaded library: 100 for 0.1.0, and "0.1.0".
inline std::int32_t version() noexcept { return mv_version(); }
inline std::string version_text() { return mv_version_text(); }
/// How much the library logs, an mv_log_level.
inline void log_level(std::int32_t level) { check(mv_log_level_set(level)); }

/// A member of a cluster, from its construction to its destruction. If an exception leaves its block, the other processes see this one as
/// lost (mv_abort()); otherwise the destructor ends it as shutdown() does, without its errors.
class Node {
 public:
  /// The default node, from the environment: as `polyverso run` sets it, otherwise a cluster of one process.
  Node() { check(mv_init(nullptr)); }
  /// With settings as text: Node node("sync=1 timeout_ms=500").
  explicit Node(const std::string& settings) { check(mv_init_text(settings.c_str())); }
  explicit Node(const mv_init_options& options) { check(mv_init(&options)); }
  /// From a command line, of which the used arguments are removed.
  Node(int& argc, char** argv) { check(mv_init_args(&argc, argv)); }
  /// A further node in this process.
  static Node open(const mv_init_options& options) { return Node(Further{}, detail::value<mv_node>(mv_node_open, &options)); }

  Node(Node&& other) noexcept
      : id_(other.id_), open_(std::exchange(other.open_, false)), exceptions_(other.exceptions_), controller_(std::move(other.controller_)) {}
  Node& operator=(Node&&) = delete;
  ~Node() {
    if (!open_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      mv_abort(id_, "an exception left the block of the node");
      return;
    }
    while (mv_shutdown(id_) == MV_EINTR) {}
  }

  /// For C functions; 0 is the default node.
  mv_node id() const noexcept { return id_; }
  /// Ends the node: waits until this worker's adds are applied. After Interrupted it still serves: call again.
  void shutdown() {
    const mv_status status = mv_shutdown(id_);
    if (status != MV_EINTR) open_ = false;
    check(status);
  }
  /// Hands the tables of this server over to other servers; a process that is also a worker finishes as a worker first. Afterwards shutdown()
  /// does not wait for the workers.
  /// After a TimeoutError the drain continues.
  void drain(std::chrono::milliseconds timeout = std::chrono::seconds(30)) { check(mv_cluster_drain(id_, timeout.count())); }
  /// Changes the number of the cluster's servers, and waits until it has them.
  void resize(uint64_t servers, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    check(mv_cluster_resize(id_, servers, timeout.count()));
  }
  /// The oldest change of the membership that was not returned yet; nothing if there is none within this time. See mv_membership_next().
  std::optional<mv_membership_event> next_event(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    mv_membership_event event = MV_MEMBERSHIP_EVENT_INIT;
    const mv_status status = mv_membership_next(id_, &event, timeout.count());
    if (status == MV_ETIMEOUT) return std::nullopt;
    check(status);
    return event;
  }
  /// Ends the node at once; the other processes' errors have the reason.
  void abort(const std::string& why) {
    open_ = false;
    check(mv_abort(id_, why.c_str()));
  }

  std::int64_t rank() const { return detail::value<std::int64_t>(mv_rank, id_); }
  std::int64_t size() const { return detail::value<std::int64_t>(mv_size, id_); }
  std::int64_t worker_id() const { return detail::value<std::int64_t>(mv_worker_id, id_); }  // -1: only a server
  std::int64_t num_workers() const { return detail::value<std::int64_t>(mv_num_workers, id_); }
  std::int64_t active_workers() const { return detail::value<std::int64_t>(mv_active_workers, id_); }  // see mv_active_workers()
  std::int64_t server_id() const { return detail::value<std::int64_t>(mv_server_id, id_); }  // -1: only a worker
  std::int64_t num_servers() const { return detail::value<std::int64_t>(mv_num_servers, id_); }
  bool is_master() const { return detail::value<std::int32_t>(mv_is_master, id_) != 0; }
  bool is_sync() const { return detail::value<std::int32_t>(mv_is_sync, id_) != 0; }

  void barrier(const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_barrier(id_, options); });
  }
  Request barrier_async(const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_barrier(id_, options); });
  }

  /// The ids of requests that have finished, each once, at most `capacity`; runs callbacks. Waits for the first one.
  std::vector<mv_request> poll(std::size_t capacity = 64, Milliseconds timeout = Milliseconds{0}) const {
    std::vector<mv_request> finished(capacity);
    std::uint64_t count = 0;
    check(mv_poll(id_, finished.data(), capacity, &count, timeout.count()));
    finished.resize(count);
    return finished;
  }
  /// Readable while poll() has something to do.
  std::int32_t event_fd() const { return detail::value<std::int32_t>(mv_event_fd, id_); }

  /// Shows a number of the program's, such as report("loss", loss), in status() and metrics().
  void report(const std::string& name, double value) const { check(mv_report(id_, name.c_str(), value)); }

  /// Texts; flags: MV_JSON, of doctor() also mv_doctor_flag, of status() MV_LIVE.
  std::string status(std::uint32_t flags = 0) const {
    return detail::text([&](auto... out) { return mv_status_text(id_, flags, out...); });
  }
  std::string doctor(std::uint32_t flags = 0) const {
    return detail::text([&](auto... out) { return mv_doctor_text(id_, flags, out...); });
  }
  std::string metrics() const {
    return detail::text([&](auto... out) { return mv_metrics_text(id_, out...); });
  }
  std::string trace() const {
    return detail::text([&](auto... out) { return mv_trace_text(id_, out...); });
  }
  /// The cluster's tables, as JSON.
  std::string tables() const {
    return detail::text([&](auto... out) { return mv_table_list(id_, out...); });
  }

  /// Collective: saves all tables. Keeps the newest `keep` checkpoints of the directory, 0: all.
  void save_checkpoint(const std::string& directory, std::uint64_t keep = 0, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_checkpoint_save(id_, directory.c_str(), keep, options); });
  }
  Request save_checkpoint_async(const std::string& directory, std::uint64_t keep = 0, const Call& call = {}) const {
    return detail::start(call, [&](auto* options) { return mv_checkpoint_save(id_, directory.c_str(), keep, options); });
  }
  /// Collective: loads a checkpoint, or the newest one of a directory.
  void load_checkpoint(const std::string& path, const Call& call = {}) const {
    detail::block(call, [&](auto* options) { return mv_checkpoint_load(id_, path.c_str(), options); });
  }

  /// Executes the commands of Store::send_command() on this server; an exception becomes the sender's error.
  using Controller = std::function<void(std::int64_t head, std::string_view body)>;
  /// The controller runs in this thread's poll() and calls of stores. Empty: none.
  void set_controller(Controller controller) {
    auto next = std::make_unique<Controller>(std::move(controller));
    check(*next ? kv_set_controller(id_, &run_controller, next.get()) : kv_set_controller(id_, nullptr, nullptr));
    controller_ = std::move(next);
  }
  /// Executes commands until all workers have finished; for a process that is only a server. After Interrupted: call again.
  void run_server(Controller controller) {
    controller_ = std::make_unique<Controller>(std::move(controller));
    check(kv_run_server(id_, &run_controller, controller_.get()));
  }

 private:
  struct Further {};
  Node(Further, mv_node id) noexcept : id_(id) {}
  static mv_status run_controller(void* user, std::int64_t head, const char* body) noexcept {
    return detail::callback([&] { (*static_cast<Controller*>(user))(head, body); });
  }

  mv_node id_ = 0;
  bool open_ = true;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Controller> controller_;
};

/// The report of this machine without a node; flags: MV_JSON, MV_REACH.
inline std::string doctor(std::uint32_t flags = 0) {
  return detail::text([&](auto... out) { return mv_doctor_text(0, flags, out...); });
}
/// The status of a cluster of which this process is no member; flags: MV_JSON, MV_LIVE.
inline std::string cluster_status(const std::string& settings, std::uint32_t flags = 0) {
  return detail::text([&](auto... out) { return mv_cluster_status_text(settings.c_str(), flags, out...); });
}
/// Asks such a cluster to have this many servers; returns once its master has answered.
inline void resize_cluster(const std::string& settings, std::uint64_t servers) { check(mv_cluster_resize_at(settings.c_str(), servers)); }
/// The last lines of a process's log.
inline std::string cluster_log(const std::string& settings, std::int64_t rank, std::uint32_t flags = 0) {
  return detail::text([&](auto... out) { return mv_cluster_log_text(settings.c_str(), rank, flags, out...); });
}
/// The contents of a checkpoint, as JSON.
inline std::string inspect_checkpoint(const std::string& path) {
  return detail::text([&](auto... out) { return mv_checkpoint_inspect(path.c_str(), out...); });
}

}  // namespace polyverso

#endif
