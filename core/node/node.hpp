#pragma once
// One member of a cluster: engines, roads and loop wired together, and the calls that capi/ offers.

#include <polyverso/polyverso.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/traffic.hpp"
#include "codec/codec.hpp"
#include "node/settings.hpp"
#include "table/shard.hpp"

namespace mv::doctor {
struct Tuning;  // node/doctor/tuning.hpp
}

namespace mv::node {

/// An unfinished call of a user, blocking or not. Shared by the caller's side and the loop's.
class Call;
using CallRef = std::shared_ptr<Call>;
class Table;
using TableRef = std::shared_ptr<Table>;
class Group;  // node/group.hpp
using GroupRef = std::shared_ptr<Group>;

enum class Mode { kBlocking, kAsync, kForget };

/// What a barrier does first: it waits until this worker's changes are acknowledged, or nothing.
enum class Fence { kChanges, kNone };

/// How a call waits, as mv_call_options says.
struct CallOptions {
  Mode mode = Mode::kBlocking;
  base::Nanos timeout{0};  ///< 0: the node's default for this kind of call; base::kNever: none
  bool keep_on_interrupt = false;  ///< kBlocking: a signal leaves the call running, in Started::call, with MV_EINTR
  int64_t priority = 0;    ///< where calls on other tables wait too, the higher ones go first
  int64_t tag = 0;         ///< kAsync: what Node::poll() hands out for it (capi/: the request handle); 0: nothing
  CallRef group;           ///< kAsync: the call is a part of this one, see Node::group()
};

/// A call's data as the user gave it. With MV_RAW, count is in bytes.
struct ConstData {
  const void* values = nullptr;
  uint64_t count = 0;
  mv_dtype dtype = MV_F32;
};
struct MutableData {
  void* values = nullptr;
  uint64_t count = 0;
  mv_dtype dtype = MV_F32;
};
/// Row ids, or all rows.
struct Rows {
  const int64_t* ids = nullptr;
  uint64_t count = 0;
  bool all = true;
};

/// What a started call left: for kBlocking and kForget `status` is final and `call` null (but see keep_on_interrupt); for
/// kAsync `call` is set if status is ok.
struct Started {
  base::Status status;
  CallRef call;
};

/// Where this node stands. Fixed once start() has returned.
struct Identity {
  int64_t rank = 0, size = 1;
  int64_t worker_id = 0, num_workers = 1;  ///< worker_id -1: only a server
  int64_t server_id = 0, num_servers = 1;  ///< server_id -1: only a worker
  bool sync = false;
  std::string address;  ///< where others are told to reach it; empty where nobody is to
};

using TableSpec = table::Spec;

/// A table to be created, and its initial value: worker 0's counts.
struct NewTable {
  table::SpecRef spec;
  ConstData initial;
};

struct TableInfo {
  TableSpec spec;               ///< with the updater of now
  uint32_t servers = 0;
  uint64_t bytes = 0, adds = 0, gets = 0, clock = 0;
  table::Usage usage;
};

/// What an updater remembers of a dense table.
struct TableStates {
  table::UpdaterSpec updater;
  std::vector<std::vector<std::byte>> states;  ///< each of all elements, of the storage dtype
  std::vector<table::Mark> marks;              ///< by server; none: left as they are
};

/// A chunk of a scan; see mv_table_scan().
struct Scanned {
  uint64_t found = 0;
  int64_t next = -1;
};

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
  std::optional<base::RoadKind> road;  ///< nothing: there is no connection
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
  static std::unique_ptr<Node> make(const Settings& settings);
  virtual ~Node() = default;
  /// Joins; before anything else. MV_EINTR after a signal: it goes on joining, and is to be called again. After another
  /// error only the destructor may follow.
  virtual base::Status join() = 0;

  virtual const Identity& identity() const = 0;
  /// See mv_shutdown(). MV_EINTR leaves the node running; any other result ends it, and only the destructor may follow.
  virtual base::Status shutdown() = 0;
  /// In a forked child: closes the inherited descriptors without a word to anybody. Async-signal-safe; nothing but
  /// leaking the object may follow.
  virtual void abandon_after_fork() noexcept = 0;

  /// This node's figures in Prometheus's format, and its last events in Chrome's.
  virtual base::Result<std::string> metrics_text() = 0;
  virtual base::Result<std::string> trace_text() = 0;

  virtual Started barrier(const CallOptions& options, Fence fence = Fence::kChanges) = 0;
  /// Collective, all of them or none: the first error is that of one table. MV_EINTR after a signal: to be called again.
  virtual base::Result<std::vector<TableRef>> create_tables(std::vector<NewTable> tables) = 0;
  virtual base::Result<TableRef> create_table(TableSpec spec, ConstData initial) = 0;
  virtual base::Result<TableRef> open_table(const std::string& name) = 0;
  virtual base::Result<std::vector<TableSpec>> list_tables() = 0;
  /// All other members, by rank, each asked for an answer. Takes as long as the slowest, at most a second. MV_EINTR after a signal.
  virtual base::Result<std::vector<PeerReport>> examine_peers() = 0;
  /// Measures what messages between workers cost; collective among all of them. MV_ESTATE where there is but one, MV_ECANCELED after a signal.
  virtual base::Result<doctor::Tuning> tune() = 0;
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

  /// A table for which Table::joins_many() holds, and all of its values.
  struct ManyAdd {
    Table* table;
    const std::byte* values;
  };
  struct ManyGet {
    Table* table;
    std::byte* out;
  };
  /// Table::add() with Mode::kForget of all rows of many tables, in few messages. MV_EINTR: nothing was added.
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

/// A table as one handle sees it. Methods from any thread; calls of one thread take effect in their order.
class Table {
 public:
  virtual ~Table() = default;
  virtual base::Result<TableInfo> info() = 0;
  virtual Started add(const Rows& rows, const ConstData& data, const CallOptions& options) = 0;
  /// Adds what a codec makes of all rows' values, each message's by itself. What it leaves out is in `residual`, elements of the storage
  /// dtype, and went into it before; unchanged on errors before the call has begun. The residual is the caller's to lock.
  virtual Started add_encoded(const ConstData& gradient, std::byte* residual, const codec::CodecRef& codec, const CallOptions& options) = 0;
  /// add() of all rows, which are made some at a time as the shard wants them, where all of them lie in this process and nobody waits
  /// for anybody. False: nothing was done.
  virtual bool add_here(const table::Shard::Make&, base::Status* /*status*/) { return false; }
  /// The same of values that are there.
  virtual bool add_here(const std::byte*, base::Status* /*status*/) { return false; }
  /// It will be used in a moment, or rather `soon`: what a call looks at first is fetched into the caches.
  virtual void expect(bool /*soon*/) const {}
  /// It may be one of Node::add_many() and Node::get_many().
  virtual bool joins_many() const { return false; }
  virtual Started set(const Rows& rows, const ConstData& data, const CallOptions& options) = 0;
  virtual Started get(const Rows& rows, const MutableData& data, const CallOptions& options) = 0;
  /// get() of all rows into each of these places, where it needs no message and no waiting. False: nothing was done.
  virtual bool get_here(std::span<std::byte* const>, base::Status* /*status*/) { return false; }
  /// A get of all rows that servers send through a codec: always by messages, so that every worker gets the same.
  virtual Started get_encoded(const MutableData& data, const codec::CodecRef& codec, const CallOptions& options) = 0;
  virtual Started peek(const Rows& rows, const MutableData& data, const CallOptions& options) = 0;
  virtual Started erase(const Rows& rows, const CallOptions& options) = 0;
  virtual Started set_updater(const table::UpdaterSpec& updater, const CallOptions& options) = 0;
  /// After this worker's earlier adds, and the rounds that they belong to.
  virtual base::Result<TableStates> states() = 0;
  /// Those of the table's updater, as states() gave them, perhaps from another number of servers.
  virtual base::Status set_states(const TableStates& states) = 0;
  virtual base::Status clock() = 0;
  /// A merging table's rounds go on without this worker's adds.
  virtual base::Status leave_rounds() = 0;
  virtual base::Result<Scanned> scan(int64_t cursor, std::span<int64_t> rows, const MutableData& data) = 0;
  virtual base::Status close() = 0;
  virtual base::Status destroy() = 0;
};

}  // namespace mv::node
