#pragma once
// Node: one member of a cluster. Wires engines, transports and loop together, and makes the calls that capi/ offers.

#include <polyverso/polyverso.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/node/membership.hpp"
#include "api/table/table.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/traffic.hpp"
#include "engine/cluster/member_state.hpp"
#include "engine/status/form.hpp"
#include "runtime/identity.hpp"
#include "runtime/settings.hpp"

namespace mv::api {

class Group;  // api/group/group.hpp
using GroupRef = std::shared_ptr<Group>;
struct Tuning;  // api/group/tuning.hpp

/// What a barrier waits for first: the acknowledgements of this worker's changes, or nothing.
enum class Flush { kChanges, kNone };

/// Another member of the cluster, and the connection to it from here.
struct PeerReport {
  using State = cluster::MemberState;

  int64_t rank = 0;
  int32_t role = MV_ROLE_ALL;  ///< mv_role; or kRoleScheduler
  std::string host, address;
  uint32_t pid = 0;
  State state = State::kHere;
  std::string why_lost;
  bool needed = true;  ///< the two members exchange messages
  std::optional<base::TransportKind> transport;  ///< nullopt: there is no connection
  bool same_host = false;   ///< by host name
  std::string why_not_shm;  ///< for TCP, as far as it is known
  std::string cipher;       ///< by which the connection is encrypted; empty if it is not
  base::Nanos round_trip = base::kNever;  ///< the shortest of several; kNever: no answer
};

/// A worker's command to this server, see kv_send_command().
struct Command {
  uint64_t number = 0;
  int64_t head = 0;
  std::string body;
};

/// This worker's end of a channel between all workers that open one of the same name: see engine/channel/channels.hpp.
/// Any thread. The node outlives it.
class Channel {
 public:
  using Bytes = std::vector<std::byte>;
  struct Due {
    bool asked = false;              ///< collect() of other workers waits for give()
    std::optional<Bytes> delivered;  ///< the last delivery, unless it was taken already
  };

  virtual ~Channel() = default;
  /// Whether collect() of other workers waits for this one. If not, as at first, this one gives them nothing.
  virtual void set_giving(bool on) = 0;
  /// Raises the limit on the bytes that this process accepts from one worker, which is 0 at first.
  virtual void accept(uint64_t more) noexcept = 0;
  /// Whether take() has something to return. When it becomes true, the threads in wait_until() are woken. Never locks.
  virtual bool is_due() const = 0;
  virtual Due take() = 0;
  virtual void give(Bytes bytes) = 0;
  /// The bytes of the other workers, by worker id; empty for those that have left, are lost or give nothing.
  /// MV_ETIMEOUT names the workers that have not called give(); MV_EINTR.
  virtual base::Result<std::vector<Bytes>> collect(base::Nanos timeout) = 0;
  /// Delivers bytes to each other worker, by worker id, in place of those that it has not taken yet. MV_ETIMEOUT,
  /// MV_EINTR; MV_ENOTFOUND if a worker has not opened the channel.
  virtual base::Status deliver(std::vector<Bytes> bytes) = 0;
};

/// Any thread, unless stated otherwise. A Node outlives its tables and calls.
class Node {
 public:
  /// Why the node has broken down: memory ran out while its engines were halfway through a change, so they no longer
  /// run. Peers see it as lost, every call fails with this status, and shutdown() returns it. Null while the node is
  /// sound.
  const base::Status* defect() const noexcept { return defect_.load(std::memory_order_acquire); }

  /// Makes a node that has not joined a cluster yet.
  static std::unique_ptr<Node> make(const runtime::Settings& settings);
  virtual ~Node() = default;
  /// Joins the cluster; the first call. MV_EINTR after a signal: the join continues; call again. After another error
  /// only the destructor may follow.
  virtual base::Status join() = 0;

  virtual const runtime::Identity& identity() const = 0;
  /// See mv_shutdown(). MV_EINTR leaves the node running; any other result ends it, and only the destructor may follow.
  virtual base::Status shutdown() = 0;
  /// The error of drain() for a process that can never drain, as long as it has its present role.
  virtual base::Status why_never_drain() = 0;
  /// See mv_cluster_drain(). MV_EINTR after a signal: the drain continues; call again.
  virtual base::Status drain(base::Nanos timeout) = 0;
  /// See mv_cluster_resize(). MV_EINTR after a signal: the change continues; call again.
  virtual base::Status resize(uint32_t servers, base::Nanos timeout) = 0;
  /// See mv_abort(). Only the destructor may follow.
  virtual void abort(const std::string& why) = 0;
  /// For a forked child: closes the inherited descriptors without sending anything. Async-signal-safe; afterwards the
  /// object can only be leaked.
  virtual void abandon_after_fork() noexcept = 0;

  /// This node's metrics in Prometheus's format, and its last events in Chrome's.
  virtual base::Result<std::string> metrics_text() = 0;
  virtual base::Result<std::string> trace_text() = 0;

  /// If a signal interrupts a blocking barrier (MV_EINTR), the barrier stays open, because the other workers may have
  /// passed it already, and the next blocking call continues it. With keep_on_interrupt, the caller has the open call.
  virtual Started barrier(const CallOptions& options, Flush flush = Flush::kChanges) = 0;
  /// The same for a blocking barrier that `or_until` has ended early, when a signal comes.
  virtual void leave_barrier_open(CallRef barrier) = 0;
  /// Collective. Creates all tables or none; an error is the first one of a table. MV_EINTR after a signal: call again.
  virtual base::Result<std::vector<TableRef>> create_tables(std::vector<NewTable> tables) = 0;
  virtual base::Result<TableRef> create_table(TableSpec spec, ConstData initial) = 0;
  virtual base::Result<TableRef> open_table(const std::string& name) = 0;
  virtual base::Result<std::vector<TableSpec>> list_tables() = 0;
  /// Reports on all other members, by rank, and asks each for an answer. Takes as long as the slowest, at most a
  /// second. MV_EINTR after a signal.
  virtual base::Result<std::vector<PeerReport>> examine_peers() = 0;
  /// Measures the cost of messages between workers; collective among all of them. MV_ESTATE if there is only one,
  /// MV_ECANCELED after a signal.
  virtual base::Result<Tuning> tune() = 0;
  /// The state of the cluster as text or as JSON. Returns within a few seconds, even if other members do not answer.
  virtual base::Result<std::string> status(const status::Form& form) = 0;
  /// Adds a number of the program to this node's part of the status. Never waits.
  virtual base::Status report(const std::string& name, double value) = 0;

  /// kAsync: returns when training may continue. Earlier errors are in the call's status too.
  virtual Started save_checkpoint(const std::string& directory, uint64_t keep, const CallOptions& options) = 0;
  virtual Started load_checkpoint(const std::string& path, const CallOptions& options) = 0;

  /// Makes a call that consists of parts: the asynchronous calls that are started with it as CallOptions::group.
  /// close_group() must follow once they are started. The group ends when all of its parts have ended, with the
  /// first error among them. If there is none, `finish` runs before, on the thread that ends the last part. Only
  /// mode and tag of `options` count.
  virtual CallRef group(const CallOptions& options) = 0;
  virtual void close_group(const CallRef& group, std::function<base::Status()> finish) = 0;

  /// Table::add() with Mode::kOneWay for all rows of many tables, in few messages. MV_EINTR: nothing was added.
  virtual base::Status add_many(std::span<const ManyAdd> adds, const CallOptions& options) = 0;
  /// Table::get() of all rows of many tables, in few messages, as parts of the group in `options`.
  virtual base::Status get_many(std::span<const ManyGet> gets, const CallOptions& options) = 0;

  /// Completes once the controllers of all servers have executed the command.
  virtual Started send_command(int64_t head, const std::string& body, const CallOptions& options) = 0;
  /// Sets whether this server executes commands; otherwise they fail. `waiting` receives, on the loop, by how many the
  /// commands waiting for next_command() have grown; negative: shrunk.
  virtual void set_controller(bool executes, std::function<void(int64_t more)> waiting) = 0;
  virtual std::optional<Command> next_command() = 0;
  virtual void command_done(uint64_t number, const base::Status& outcome) = 0;
  /// Whether all workers have finished or are lost. Never locks.
  virtual bool workers_gone() const = 0;

  /// Waits for a call and returns its status; or MV_ETIMEOUT / MV_EINTR with `*alive` true if the call continues.
  virtual base::Status wait(const CallRef& call, base::Nanos timeout, bool* alive) = 0;
  virtual bool done(const CallRef& call) const = 0;
  /// The status of a finished call.
  virtual base::Status result(const CallRef& call) const = 0;
  /// Declares that no caller will wait for the call. Its error, if any, is reported like that of a
  /// fire-and-forget add. Never waits.
  virtual void release(const CallRef& call) = 0;
  /// Withdraws an unfinished call; its buffers are free when this returns. The text states the outcome.
  virtual base::Status cancel(const CallRef& call) = 0;

  /// Tags of finished kAsync calls that were not returned before, up to `most`. Waits for the first one, if `most` is
  /// not 0, or until `or_until` is true, which must not lock. MV_EINTR after a signal.
  virtual base::Result<std::vector<int64_t>> poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until) = 0;
  /// Readable while poll() has tags to return, or callbacks are due.
  virtual int event_fd() const = 0;
  /// Sets whether callbacks of the user wait for a poll. Wakes the threads that are in one.
  virtual void callbacks_due(bool any) = 0;

  /// The oldest change of the membership that was not taken. MV_ETIMEOUT, MV_EINTR.
  virtual base::Result<Told> next_membership_event(base::Nanos timeout) = 0;
  /// Whether such an event waits, and the program takes them: it has called next_membership_event() before. Never
  /// locks.
  virtual bool membership_event_due() const = 0;

  /// Waits for a condition that other threads of this process bring about and announce with wake(). `done` must not
  /// lock. MV_ETIMEOUT, MV_EINTR, MV_ESTATE.
  virtual base::Status wait_until(const std::function<bool()>& done, base::Nanos timeout) = 0;
  virtual void wake() = 0;

  /// Lets the node's groups use this process's devices. Before the first call.
  virtual void set_devices(Devices) {}
  virtual const Devices& devices() const = 0;
  /// Opens a group of these workers, by their ids in any order; collective among them. Empty: all workers.
  virtual base::Result<GroupRef> open_group(std::vector<int64_t> workers, const CallOptions& options) = 0;
  /// Joins a group of other workers that grows by this name. Blocking only.
  virtual base::Result<GroupRef> join_group(const std::string& name, const CallOptions& options) = 0;
  virtual std::unique_ptr<Channel> open_channel(const std::string& name) = 0;
  /// The ids of the workers on this machine, by host name.
  virtual std::vector<int64_t> workers_here() = 0;
  /// The ids of the workers that have neither finished nor are lost, as far as this process knows.
  virtual std::vector<int64_t> active_workers() = 0;

 protected:
  std::atomic<const base::Status*> defect_{nullptr};
};

}  // namespace mv::api
