#pragma once
// Metrics: what a node has counted, taken at one moment on its loop and formatted as text elsewhere.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.hpp"
#include "base/traffic.hpp"
#include "engine/member.hpp"
#include "runtime/identity.hpp"

namespace mv::runtime {

struct Metrics {
  struct Peer {
    base::Traffic traffic;
    std::string cipher;                  ///< by which its connection is encrypted; empty if it is not
    std::optional<base::Nanos> silence;  ///< since the last message from it; nullopt for this node itself, and without a connection
  };
  std::optional<int64_t> certificate_expires;  ///< of this node, in seconds since 1970
  struct OwnTable {
    std::string name;
    table::Used used;
  };
  struct HeldTable {
    std::string name;
    shard::Usage usage;
  };

  Identity identity;
  base::Nanos uptime{0};
  std::optional<base::Nanos> busy;         ///< of the loop, if times are taken
  std::array<uint64_t, cluster::kChanges> changes{};  ///< of the membership, by cluster::Change
  std::array<uint64_t, 4> members{};       ///< by cluster::MemberState; the last: servers that have handed their tables over and left
  struct Parts {
    uint64_t kept = 0, missing = 0;  ///< servers' parts that this process serves, by whether they have a back-up
    uint64_t differing = 0;          ///< tables whose copy here has differed from their server's
    uint64_t journaled = 0;          ///< changes that this process has acknowledged because they were in the back-up's journal
  };
  std::optional<Parts> parts;              ///< with replicas
  std::map<std::string, Peer> peers;       ///< by rank; "" for processes that were never members
  std::vector<OwnTable> own;               ///< tables that this process uses
  std::vector<HeldTable> held;             ///< parts that this server holds
  std::array<uint64_t, 256> started{};     ///< requests, by wire::Body
  std::array<base::Histogram, table::kUseNames.size()> calls;
  base::Histogram held_changes, held_gets; ///< how long this server's gates held requests back
  uint64_t gated = 0;                      ///< requests that they hold back now
  uint64_t repeated = 0, duplicates = 0, refused = 0, turned_away = 0, in_flight = 0;
  checkpoint::Participant::Record checkpoints;
  std::vector<status::ReportedNumber> reported;  ///< by the program
};

/// In Prometheus's format.
std::string to_prometheus(const Metrics& metrics);

}  // namespace mv::runtime
