#pragma once
// One member of a cluster: engines, transports and loop wired together, and the calls that capi/ offers.

#include <polyverso/polyverso.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/table/table.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/traffic.hpp"
#include "runtime/identity.hpp"
#include "runtime/settings.hpp"

namespace mv::api {

class Group;  // api/group/group.hpp
using GroupRef = std::shared_ptr<Group>;
struct Tuning;  // api/group/tuning.hpp

/// What a barrier does first: it waits until this worker's changes are acknowledged, or nothing.
enum class Flush { kChanges, kNone };

/// Another member of the cluster, and the way to it from here.
struct PeerReport {
  enum class State { kHere, kFinished, kLost };
  int64_t rank = 0;
  int32_t role = MV_ROLE_ALL;  ///< mv_role; or kRoleScheduler
  std::string host, address;
  uint32_t pid = 0;
  State state = State::kHere;
  std::string why_lost;
  bool needed = true;  ///< these two have something to say to each other
  std::optional<base::TransportKind> transport;  ///< nothing: there is no connection
  bool same_host = false;   ///< by its name
  std::string why_not_shm;  ///< for TCP, as far as it is known
  base::Nanos round_trip = base::kNever;  ///< the shortest of some; kNever: it does not answer
};

/// A worker's word for this server, see kv_send_command().
struct Command {
  uint64_t number = 0;
  int64_t head = 0;
  std::string body;
};
/// Whether this server executes commands; those who only begin as servers have them wait for it.
enum class Controller { kHere, kAwaited, kNone };

/// All methods from any thread, unless said otherwise. A Node outlives its tables and calls.
class Node {
 public:
  /// Why the node has broken down: its engines were halfway through a change when memory ran out, and run no more. Peers see it as
  /// lost, every call fails with this status, and shutdown() returns it. Null while the node is sound.
  const base::Status* defect() const noexcept { return defect_.load(std::memory_order_acquire); }

  /// One that is not in its cluster yet.
  static std::unique_ptr<Node> make(const runtime::Settings& settings);
  virtual ~Node() = default;
  /// Joins; before anything else. MV_EINTR after a signal: it goes on joining, and is to be called again. After another
  /// error only the destructor may follow.
  virtual base::Status join() = 0;

  virtual const runtime::Identity& identity() const = 0;
  /// See mv_shutdown(). MV_EINTR leaves the node running; any other result ends it, and only the destructor may follow.
  virtual base::Status shutdown() = 0;
  /// In a forked child: closes the inherited descriptors without a word to anybody. Async-signal-safe; nothing but
  /// leaking the object may follow.
  virtual void abandon_after_fork() noexcept = 0;

  /// This node's figures in Prometheus's format, and its last events in Chrome's.
  virtual base::Result<std::string> metrics_text() = 0;
  virtual base::Result<std::string> trace_text() = 0;

  virtual Started barrier(const CallOptions& options, Flush flush = Flush::kChanges) = 0;
  /// Collective, all of them or none: the first error is that of one table. MV_EINTR after a signal: to be called again.
  virtual base::Result<std::vector<TableRef>> create_tables(std::vector<NewTable> tables) = 0;
  virtual base::Result<TableRef> create_table(TableSpec spec, ConstData initial) = 0;
  virtual base::Result<TableRef> open_table(const std::string& name) = 0;
  virtual base::Result<std::vector<TableSpec>> list_tables() = 0;
  /// All other members, by rank, each asked for an answer. Takes as long as the slowest, at most a second. MV_EINTR after a signal.
  virtual base::Result<std::vector<PeerReport>> examine_peers() = 0;
  /// Measures what messages between workers cost; collective among all of them. MV_ESTATE where there is but one, MV_ECANCELED after a signal.
  virtual base::Result<Tuning> tune() = 0;
  /// How the cluster stands, as text for people or as JSON. Answers within a few seconds, whatever has become of the others.
  virtual base::Result<std::string> status(bool json) = 0;

  /// kAsync: returns when training may go on; what goes wrong before that is the call's status too.
  virtual Started save_checkpoint(const std::string& directory, uint64_t keep, const CallOptions& options) = 0;
  virtual Started load_checkpoint(const std::string& path, const CallOptions& options) = 0;

  /// A call of several parts, which are the asynchronous calls that are started with it as CallOptions::group. close_group() follows
  /// once they have been started: the group is over when all of its parts are, with the first error among them; if there is none,
  /// then `finish` runs before, on the thread on which the last part ends. Of `options` the mode and the tag count.
  virtual CallRef group(const CallOptions& options) = 0;
  virtual void close_group(const CallRef& group, std::function<base::Status()> finish) = 0;

  /// Table::add() with Mode::kOneWay of all rows of many tables, in few messages. MV_EINTR: nothing was added.
  virtual base::Status add_many(std::span<const ManyAdd> adds, const CallOptions& options) = 0;
  /// Table::get() of all rows of many tables, in few messages, as parts of the group of `options`.
  virtual base::Status get_many(std::span<const ManyGet> gets, const CallOptions& options) = 0;

  /// Completed once the controllers of all servers have executed it.
  virtual Started send_command(int64_t head, const std::string& body, const CallOptions& options) = 0;
  /// `waiting` hears, on the loop, how many more commands wait for next_command(), or fewer.
  virtual void set_controller(Controller controller, std::function<void(int64_t more)> waiting) = 0;
  virtual std::optional<Command> next_command() = 0;
  virtual void command_done(uint64_t number, const base::Status& outcome) = 0;
  /// All workers have finished, or are lost. Never locks.
  virtual bool workers_gone() const = 0;

  /// Waits for a call: its own status; or MV_ETIMEOUT / MV_EINTR with `*alive` true, the call going on.
  virtual base::Status wait(const CallRef& call, base::Nanos timeout, bool* alive) = 0;
  virtual bool done(const CallRef& call) const = 0;
  /// The status of a done call.
  virtual base::Status result(const CallRef& call) const = 0;
  /// Nobody will ask for the call's end. Its error, if any, is told as that of a fire-and-forget add. Never waits.
  virtual void release(const CallRef& call) = 0;
  /// Withdraws an unfinished call; its buffers are free when this returns. The text tells what became of it.
  virtual base::Status cancel(const CallRef& call) = 0;

  /// Tags of kAsync calls that finished and were not handed out yet, up to `most`, waiting for the first, where any are wanted, or for
  /// what `or_until` says, which must not lock. MV_EINTR after a signal.
  virtual base::Result<std::vector<int64_t>> poll(size_t most, base::Nanos timeout, const std::function<bool()>& or_until) = 0;
  /// Readable while poll() has something to hand out, or callbacks are due.
  virtual int event_fd() const = 0;
  /// Whether callbacks of the user's wait for a poll. Wakes those who are in one.
  virtual void callbacks_due(bool any) = 0;

  /// Waits for something that threads of this process do, and follow with wake(). `done` must not lock. MV_ETIMEOUT, MV_EINTR, MV_ESTATE.
  virtual base::Status wait_until(const std::function<bool()>& done, base::Nanos timeout) = 0;
  virtual void wake() = 0;

  /// A group of these workers, by their ids in any order; collective among them. None: all workers.
  virtual base::Result<GroupRef> open_group(std::vector<int64_t> workers, const CallOptions& options) = 0;
  /// The ids of the workers of this machine, by its name.
  virtual std::vector<int64_t> workers_here() = 0;

 protected:
  std::atomic<const base::Status*> defect_{nullptr};
};

}  // namespace mv::api
