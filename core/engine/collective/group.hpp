#pragma once
// One group as one of its ranks sees it: operations in their numbers, who has come, who is gone.

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
#include "engine/cluster/wait.hpp"
#include "engine/collective/agreement.hpp"
#include "engine/collective/group_state.hpp"
#include "engine/collective/running.hpp"
#include "engine/collective/sender.hpp"
#include "engine/rpc/server.hpp"

namespace mv::collective {

/// What there is to do when a group is broken, for messages.
inline constexpr auto kAfterBreak = "mv_group_shrink() makes another one";

/// Who is in a group, in the order of their ranks.
struct Members {
  uint64_t id = 0;
  std::vector<base::Peer> peers;
  std::vector<std::string> names;  ///< as they were when the group was opened: another process may have the place by now
};

struct GroupCounters {
  uint64_t sent = 0, received = 0, operations = 0;
  base::Status broken;
};

/// Operations have numbers, which each rank counts by itself; what a message is about it says by its number, so that nothing is to be
/// agreed upon before an operation begins. What comes early waits, and its sender with it, but for a little.
///
/// An operation ends on every rank: it is done; or somebody has told all that it failed, which spends its number; or the group is broken.
/// Loop thread only. What hears of an operation's end is called from within, and begins nothing here.
class Group {
 public:
  using Drained = std::function<void(base::Result<Shape>)>;

  Group(const base::Clock& clock, Sender& sender, rpc::Server& server, base::Pool& pool, Members members, Setting setting);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  const Members& members() const { return members_; }
  const Setting& setting() const { return setting_; }
  GroupCounters counters() const { return {sent_, received_, begun_, broken_}; }
  Agreement& agreement() { return agreement_; }
  /// What Groups remembers of shrinkings.
  struct Lineage {
    bool was_shrunk = false;  ///< the group of its survivors has been open on this node
    bool abandoned = false;   ///< it is such a group, which this node has opened and could not hand to its caller
  };
  Lineage& lineage() { return lineage_; }
  /// What the lowest rank says. Before the first operation: the others count on this rank's choosing as they do.
  void choose_by(const Basis& basis);

  void begin(Operation operation, base::OperationRef call, Handed handed = {});
  /// Of a custom operation: its values were reduced, or could not be.
  void resume(const base::Operation& call, const base::Status& status);
  /// One at a time; `call` is over once `drained` has been called, by the latter.
  void drain(const base::OperationRef& call, Drained drained);

  // ---- from the others; `asked` is finished here or later

  void on_chunk(const rpc::Asked& asked, const wire::Collect& collect, std::span<const std::byte> payload, const base::SinkRef& staged);
  void on_note(const wire::GroupNote& note);
  base::SinkRef place(const wire::Collect& collect, size_t bytes);

  /// The process of a rank is gone.
  void lost(uint32_t rank, const base::Status& why);
  /// Fails all that is under way, here and elsewhere, and all that is begun from now on.
  void break_off(const base::Status& why, bool tell);
  /// What is under way by shared memory, as far as it shows from here.
  struct Elsewhere {
    uint64_t operations = 0;  ///< begun
    const char* what = "";
    int32_t awaited = -1;     ///< the rank that this one sleeps for; -1: none
    bool has_come = false;    ///< that rank, to this operation
    base::Nanos since{0};
  };
  struct Watcher {
    std::function<void(const base::Status& why)> broken;
    std::function<void(uint32_t rank)> left;
    std::function<Elsewhere()> look;
  };
  /// Whoever carries out the group's operations otherwise: told why when it breaks, and who leaves it, at once of what has been; and asked
  /// how it stands.
  void watch(Watcher watcher);
  /// This rank makes no further operation. With an error, it was never open here: this rank has given up opening it.
  void close(const base::Status& gave_up = {});
  /// The node ends: drops everything without a word.
  void forget();

  GroupState report() const;
  /// What this rank is in, and for whom it waits there.
  std::vector<cluster::Wait> waits() const;
  base::Nanos made() const { return made_; }

  base::Nanos next_deadline() const;
  void tick(base::Nanos now);

 private:
  struct Active;
  struct Early {
    uint32_t from;
    Chunk chunk;
  };
  /// What is known of an operation that is not over here.
  struct Numbered {
    std::shared_ptr<Active> active;
    std::vector<Early> early;
    std::map<uint32_t, wire::Signature> told;  ///< by those who have begun it
    std::set<uint32_t> drainers;
    std::optional<Shape> shape;
    base::Status failed;
  };
  struct Drain {
    std::shared_ptr<base::Work> work;
    base::Nanos deadline;
    Drained drained;
    bool asked = false;
    base::Nanos since{0};
  };

  base::Status refusal(const Operation& operation) const;
  bool settle(uint64_t op);
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
  void expire_drain(base::Nanos now);
  void look(uint64_t op, Active& active, base::Nanos now);
  bool waits_beyond(uint64_t op) const;
  std::string missing(uint64_t op) const;
  std::string name(uint32_t rank) const;
  void keep_up();

  template <typename Fill>
  void tell(uint32_t to, wire::GroupWord word, Fill fill);
  template <typename Fill>
  void tell_all(wire::GroupWord word, Fill fill);
  void tell_shape(uint32_t to, uint64_t op, const Active& active);
  void tell_agreement(uint32_t to, const Agreement::Word& word);

  const base::Clock& clock_;
  Sender& sender_;
  rpc::Server& server_;
  base::Pool& pool_;
  const Members members_;
  const base::Nanos made_;
  Setting setting_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  ///< for what outlives the group
  Agreement agreement_;
  Lineage lineage_;
  uint64_t begun_ = 0;
  std::map<uint64_t, Numbered> numbers_;
  std::map<uint64_t, wire::Signature> done_;  ///< the newest ones
  std::map<uint32_t, uint64_t> reached_;  ///< operations that a rank has begun, as far as it showed
  std::map<uint32_t, uint64_t> closed_;   ///< ranks that have left, and their last operation
  std::set<uint32_t> lost_;
  uint64_t draining_at_ = 0;              ///< what the others were told: this rank makes no operation of its own there
  std::optional<Drain> drain_;
  base::Status broken_;
  Watcher watcher_;
  bool is_closed_ = false, forgotten_ = false;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace mv::collective
