#pragma once
// Who waits for whom: what engines tell of requests whose time has not come.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"

namespace mv::cluster {

/// What a worker is in. kAnswer: nothing but a server's answer is missing. kCollective: an operation of a group, whose description stands for the
/// table.
enum class WaitKind : uint8_t { kGet, kAdd, kStaleGet, kCreation, kBarrier, kCheckpoint, kAnswer, kMergedGet, kCommand, kCollective };
inline constexpr std::array<const char*, 10> kWaitNames = {"get",        "add",    "stale get",  "creation", "barrier",
                                                           "checkpoint", "answer", "merged get", "command",  "collective"};

/// A process that is waited for, and what of it is missing: "has made 40 of 41 adds"; empty if simply its call or answer.
struct Awaited {
  base::Peer peer = base::kNobody;
  std::string what;
};

struct Wait {
  WaitKind kind = WaitKind::kGet;
  base::Peer who = base::kNobody;
  std::string table;     ///< empty for those that are about none
  uint64_t number = 0;   ///< which of the worker's gets or adds, from 1; its clock; 0 if they are not counted
  base::Nanos age{0};    ///< how long it has waited
  base::Nanos still{0};  ///< how long nothing has moved where it waits
  std::vector<Awaited> awaited;
};

inline bool has_waited(const Wait& wait, base::Nanos span) { return std::min(wait.age, wait.still) >= span; }

}  // namespace mv::cluster
