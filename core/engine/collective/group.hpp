#pragma once
// A group as one of its ranks sees it: its numbered operations, the progress of the other ranks, and the lost ranks.

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/pool.hpp"
#include "base/trace.hpp"
#include "engine/cluster/wait.hpp"
#include "engine/collective/agreement.hpp"
#include "engine/collective/group_state.hpp"
#include "engine/collective/outstanding.hpp"
#include "engine/collective/reducer.hpp"
#include "engine/collective/running.hpp"
#include "engine/collective/sender.hpp"
#include "engine/rpc/server.hpp"

namespace mv::collective {

struct Note;

/// The remedy for a broken group, for error messages.
inline constexpr auto kAfterBreak = "mv_group_shrink() or mv_group_grow() makes a new one";

/// The members of a group, in the order of their ranks.
struct Members {
  uint64_t id = 0;
  std::vector<base::Peer> peers;
  std::vector<std::string> names;  ///< when the group was opened; another process may have taken the place since
  std::vector<uint32_t> places = {};  ///< their ranks in the cluster
  std::vector<uint32_t> since = {};   ///< the generation in which each of them joined
  uint32_t generation = 0;            ///< how many times groups have shrunk and grown to this one

  /// The lowest of the ranks that have been members for the longest time.
  int64_t elder() const { return since.empty() ? 0 : std::min_element(since.begin(), since.end()) - since.begin(); }
};

/// What ends a group or shortens it, for threads that do not run on the loop.
struct Ends {
  std::atomic<bool> broken{false};   ///< or closed
  std::atomic<uint32_t> left{0};     ///< 1 + the rank that was the last to leave
};

struct GroupCounters {
  uint64_t sent = 0, received = 0, operations = 0;
  base::Status broken;
};

/// One rank's end of a group. Each rank counts the operations itself, and a message names its operation by that number,
/// so no agreement is needed before an operation begins. Chunks that arrive before their operation begins here are
/// kept; their sender may run ahead only a little before it waits, too.
///
/// An operation ends on every rank in one of three ways: it is done; a rank reports to all others that it has failed,
/// which uses up its number; or the group breaks. Loop thread only. Callbacks at the end of an operation run inside the
/// group's functions, and must not begin operations.
class Group : public std::enable_shared_from_this<Group> {
 public:
  using Drained = std::function<void(base::Result<Shape>)>;

  Group(const base::Clock& clock, Sender& sender, rpc::Server& server, base::Pool& pool, Members members, Setting setting);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  const Members& members() const { return members_; }
  const Setting& setting() const { return setting_; }
  GroupCounters counters() const { return {sent_, received_, begun_, broken_}; }
  std::shared_ptr<const Ends> ends() const { return ends_; }
  Agreement& agreement() { return agreement_; }
  const Agreement& agreement() const { return agreement_; }
  /// From now on, the operations of the group are recorded. `trace` must outlive the group's use of the loop.
  void trace_to(base::TraceRing* trace) { trace_ = trace; }
  /// What Groups remembers about shrinking.
  struct Lineage {
    bool was_shrunk = false;  ///< the group of its survivors was open on this node
    bool abandoned = false;   ///< a group of survivors that this node opened, but could not return to its caller
  };
  Lineage& lineage() { return lineage_; }
  /// Sets the costs, which are the lowest rank's. Must be called before the first operation, because all ranks must
  /// choose the same algorithm.
  void choose_by(const Basis& basis);
  /// From now on, all-reduces of at least so many bytes are handed over to this. All ranks do so between the same two
  /// operations, with the same number.
  void hand_over_to(std::unique_ptr<Reducer> reducer, uint64_t from_bytes);
  void hand_over_from(uint64_t from_bytes) { setting_.hand_over_from = from_bytes; }

  /// Texts number the operations from the next one on: those before have opened the group.
  void count_from_here() { uncounted_ = begun_; }
  /// A kSend or kRecv has no number. Messages to or from a rank are received in the order in which they were sent, by
  /// tag; a time-out or withdrawal of a receive that has no message yet does not break the group.
  void begin(Operation&& operation, base::OperationRef call, Handed handed = {});
  /// Continues a custom operation: its caller has reduced the values, or could not.
  void resume(const base::Operation& call, const base::Status& status);
  /// Waits for the next operation of the other ranks; one call at a time. `drained` is called once, and ends `call`.
  void drain(const base::OperationRef& call, Drained drained);

  // ---- messages from other ranks; `asked` is finished here or later

  void on_chunk(const rpc::Asked& asked, const wire::Collect& collect, std::span<const std::byte> payload, const base::SinkRef& staged);
  void on_note(const wire::GroupNote& note);
  base::SinkRef place(const wire::Collect& collect, size_t bytes);

  /// The process of a rank is gone; `why` names it. `all_hear`: the other ranks hear of it, too, without this one.
  void lost(uint32_t rank, const base::Status& why, bool all_hear);
  /// The process of a rank has ended properly. The group continues if this rank waits for nothing from it.
  void finished(uint32_t rank, const base::Status& why);
  /// Breaks the group: operations that are running or begin later fail. `tell` notifies the other ranks.
  void break_group(const base::Status& why, bool tell);
  /// The progress of operations through shared memory, as far as it is visible here.
  struct Elsewhere {
    uint64_t operations = 0;  ///< begun
    const char* what = "";
    int32_t awaited = -1;     ///< the rank for which this one sleeps; -1: none
    bool has_come = false;    ///< `awaited` has begun this operation
    base::Nanos since{0};
    std::string tuning = {};  ///< what the implementation has chosen, and why
  };
  struct Watcher {
    std::function<void(const base::Status& why)> broken;
    std::function<void(uint32_t rank)> left;
    std::function<Elsewhere()> look;
  };
  /// Sets the callbacks of the shared-memory implementation of the group. `broken` receives the reason when the group
  /// breaks, and `left` each rank that leaves; both are called at once for past events. `look` returns its progress.
  void watch(Watcher watcher);
  /// This rank begins no further operations. With an error, the group was never open here: this rank has given up
  /// opening it. kMet: it tells the ranks that have exchanged messages with it; Groups tells others when they ask.
  enum class Tell { kNobody, kMet, kAll };
  void close(Tell to, const base::Status& gave_up = {});
  /// What it says then.
  Note closing(const base::Status& gave_up) const;
  /// Breaks the group for all ranks, with this reason in their errors, and closes it.
  void abort(const std::string& reason);
  /// Drops everything without notifying the peers, because the node ends.
  void forget();

  /// How operations by messages choose their algorithm. Any thread, once the costs are set.
  std::string tuning() const;
  GroupState report() const;
  /// The operations that this rank is in, and the ranks that it waits for there.
  std::vector<cluster::Wait> waits() const;
  base::Nanos made() const { return made_; }

  base::Nanos next_deadline() const;
  void tick(base::Nanos now);

 private:
  class Transfers;
  struct Active;
  static constexpr uint64_t kUnknown = UINT64_MAX;
  struct Early {
    uint32_t from;
    Chunk chunk;
  };
  /// The state of an operation that has not ended here.
  struct Numbered {
    std::shared_ptr<Active> active;
    std::vector<Early> early;
    std::vector<std::pair<uint32_t, wire::Signature>> told;  ///< by the ranks that have begun it
    std::set<uint32_t> drainers;
    std::optional<Shape> shape;
    base::Status failed;
  };
  /// The operations that were done here last, so that a rank that comes late with another one is told.
  class Done {
   public:
    void add(uint64_t op, const wire::Signature& signature) {
      if (newest_.empty()) newest_.resize(kMost);
      newest_[op % kMost] = {op, signature};
    }
    /// Null if it is not done, or too old.
    const wire::Signature* find(uint64_t op) const {
      return !newest_.empty() && newest_[op % kMost].first == op ? &newest_[op % kMost].second : nullptr;
    }

   private:
    static constexpr uint64_t kMost = 256;
    std::vector<std::pair<uint64_t, wire::Signature>> newest_;  ///< empty before the first one
  };
  struct Drain {
    std::shared_ptr<base::Work> work;
    base::Nanos deadline;
    Drained drained;
    bool asked = false;
    base::Nanos since{0};
  };

  base::Status refusal(const Operation& operation) const;
  Numbered& numbered(uint64_t op);
  bool settle(uint64_t op);
  bool is_reduced(uint64_t op, Active& active);
  void reduced(uint64_t op, const base::Status& status);
  void finish(uint64_t op, const base::Status& status);
  void fail(uint64_t op, const base::Status& why, bool tell);
  void disagree(uint64_t op, uint32_t a, const wire::Signature& first, uint32_t b, const wire::Signature& second);
  void came_late(uint64_t op, uint32_t from, const wire::Signature& theirs);
  bool agrees(uint64_t op, uint32_t from, const wire::Signature& signature);
  void clear(Numbered& numbered);
  void drains(uint64_t op, uint32_t from);
  void check_drained(uint64_t op);
  void drop_drain(const base::Status& why);
  void expire(uint64_t op, Active& active, base::Nanos now);
  void answered(uint32_t from);
  void expire_drain(base::Nanos now);
  void notify_awaited(uint64_t op, Active& active, base::Nanos now);
  void on_closed(uint32_t from, uint64_t last, const std::optional<Agreement::Decision>& decided, const base::Status& gave_up);
  bool waits_beyond(uint64_t op) const;
  bool awaits(uint32_t rank) const;
  bool is_other(uint32_t rank) const;
  std::string missing(uint64_t op) const;
  std::string name(uint32_t rank) const;
  uint64_t shown(uint64_t op) const { return op - std::min(op, uncounted_); }
  bool is_ahead() const;
  void keep_up();
  void note(const Active& active) const;

  void send_collect(uint32_t to, uint64_t op, const wire::Signature& signature, const Outgoing& chunk, std::shared_ptr<Sender::Receipt> receipt);
  base::Frame collect_frame(uint64_t op, const wire::Signature& signature, const Outgoing& chunk) const;
  using Fill = std::function<void(Note&)>;
  void tell(uint32_t to, wire::GroupWord word, const Fill& fill);
  void tell_all(wire::GroupWord word, const Fill& fill);
  void tell_shape(uint32_t to, uint64_t op, const Active& active);
  void tell_agreement(uint32_t to, const Agreement::Word& word);

  const base::Clock& clock_;
  Sender& sender_;
  rpc::Server& server_;
  base::Pool& pool_;
  const Members members_;
  const base::Nanos made_;
  Setting setting_;
  Planner planner_{setting_};
  Agreement agreement_;
  Lineage lineage_;
  base::TraceRing* trace_ = nullptr;  ///< null: nothing is recorded
  uint64_t begun_ = 0, uncounted_ = 0;
  std::map<uint64_t, Numbered> numbers_;
  const std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<Reducer> reducer_;  ///< null: operations are not handed over, or the group is broken
  std::map<uint64_t, Numbered>::node_type spare_number_;  ///< saves an allocation for each operation
  Done done_;
  std::map<uint32_t, uint64_t> reached_;  ///< the last operation that each rank is known to have begun
  std::map<uint32_t, uint64_t> closed_;   ///< the ranks that have left, and their last operations; kUnknown: not heard
  std::vector<bool> met_;                 ///< by rank: it has exchanged messages with this one
  Outstanding outstanding_;               ///< of operations
  std::vector<uint64_t> held_;            ///< operations that are done, and wait until no rank is far behind
  std::set<uint32_t> lost_;
  uint64_t draining_at_ = 0;              ///< the others were notified that this rank drains at this number
  std::optional<Drain> drain_;
  base::Status broken_;
  const std::shared_ptr<Ends> ends_ = std::make_shared<Ends>();
  Watcher watcher_;
  bool is_closed_ = false, forgotten_ = false;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace mv::collective
