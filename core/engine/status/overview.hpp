#pragma once
// The whole cluster at one moment: the members' reports put together, for people and for programs.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "engine/cluster/view.hpp"
#include "engine/status/report.hpp"

namespace mv::status {

inline constexpr std::array<const char*, 4> kPaceNames = {"async", "sync", "stale", "merge"};  ///< by shard::Consistency

struct Overview {
  cluster::View view;  ///< empty while the processes are still coming together
  base::Peer seen_by = base::kNobody;
  std::string missing;                        ///< while joining: who has not arrived
  std::map<base::Peer, Report> reports;       ///< of those that answered
  std::map<base::Peer, base::Nanos> silence;  ///< of those with whom there is a connection
};

/// What workers have made of a table by all accounts: a worker's own word first, else the most that a server holds of it.
struct TableOverview {
  table::TableState state;  ///< tallies by worker
  std::vector<bool> own_word;  ///< by tally
};
std::vector<TableOverview> tables_of(const Overview& overview);

/// All waits, each once, the longest first. Those for nothing but an answer only where they have become long and no gate explains them.
std::vector<cluster::Wait> waits_of(const Overview& overview);

/// A group by all accounts.
struct GroupOverview {
  uint64_t id = 0;
  std::vector<base::Peer> ranks;
  std::string transport;
  std::map<base::Peer, uint64_t> operations;  ///< of those that answered how many each has begun
  std::string broken;                         ///< as the first of them tells; empty: it goes on
};
std::vector<GroupOverview> groups_of(const Overview& overview);

/// A member's traffic with all others.
PeerState total_of(const Report& report);

/// A table with a row a rank, one of the tables, and a line for each wait.
std::string to_text(const Overview& overview);
std::string to_json(const Overview& overview);

}  // namespace mv::status
