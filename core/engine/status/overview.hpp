#pragma once
// The status of the whole cluster at one moment: the merged reports of the members, as text and as JSON.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "engine/cluster/event.hpp"
#include "engine/cluster/view.hpp"
#include "engine/status/form.hpp"
#include "engine/status/report.hpp"

namespace mv::status {

inline constexpr std::array<const char*, 4> kConsistencyNames = {"async", "sync", "stale", "merge"};  ///< by shard::Consistency

struct Overview {
  cluster::View view;  ///< empty while the processes are still joining
  base::Peer seen_by = base::kNobody;
  std::string missing;                        ///< while joining: which processes have not arrived
  std::map<base::Peer, Report> reports;       ///< of the members that answered
  std::map<base::Peer, base::Nanos> silence;  ///< of the connected members
  bool live = false;                          ///< see Form
  uint32_t replicas = 0;                      ///< of each server's tables
  /// A change of the membership, and how long ago it was.
  struct News {
    cluster::MembershipEvent event;
    base::Nanos age{0};
  };
  std::vector<News> news = {};  ///< the latest ones, the oldest first

  /// Whether the reports have the busiest peers only.
  bool is_short() const { return live && view.members.size() > kMostMembersWithPairs; }
};

/// The last lines of a member's log.
std::string log_text(const base::LogTail& tail);
std::string log_json(uint32_t rank, const base::LogTail& tail);

/// Adds what another server, or another part of the same one, says of a table.
void merge(table::TableState& into, const table::TableState& from);

/// A table, merged from all reports. A worker's tally is the one that it reports itself; without it, the maximum that
/// any server has counted.
struct TableOverview {
  table::TableState state;  ///< tallies by worker
  std::vector<bool> own_word;  ///< for each tally: reported by the worker itself
  std::map<base::Peer, table::PartSize> parts;  ///< by server, of those that answered
};
std::vector<TableOverview> tables_of(const Overview& overview);

/// All waits without duplicates, the longest first. Waits for a mere answer (kAnswer) are included only if they are
/// long and no gate explains them.
std::vector<cluster::Wait> waits_of(const Overview& overview);

/// A group, merged from all reports.
struct GroupOverview {
  uint64_t id = 0;
  std::vector<base::Peer> ranks;
  std::string transport;
  std::map<base::Peer, uint64_t> operations;  ///< operations begun by each rank that answered
  std::string broken;                         ///< the first reported reason; empty: the group is not broken
  std::string tuning = {};                    ///< as a rank tells it; the same on all
};
std::vector<GroupOverview> groups_of(const Overview& overview);

/// "worker 1 waits 12.3 s in get #41 of "weights" for worker 3 (has made 40 of 41 adds; last heard 12.1 s ago)"
std::string sentence_of(const Overview& overview, const cluster::Wait& wait);

/// A text table of the ranks, one of the tables, one of the groups, and a line for each wait.
std::string to_text(const Overview& overview);
std::string to_json(const Overview& overview);

}  // namespace mv::status
