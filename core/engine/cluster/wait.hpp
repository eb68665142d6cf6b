#pragma once
// Waits: what the engines report about pending requests, and which peers they wait for.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"

namespace mv::cluster {

/// What a worker waits in. kAnswer: only a server's answer is missing. kCollective: an operation of a group; its
/// description takes the place of the table.
enum class WaitKind : uint8_t { kGet, kAdd, kStaleGet, kCreation, kBarrier, kCheckpoint, kAnswer, kMergedGet, kCommand, kCollective };
inline constexpr std::array<const char*, 10> kWaitNames = {"get",        "add",    "stale get",  "creation", "barrier",
                                                           "checkpoint", "answer", "merged get", "command",  "collective"};

/// A peer that a request waits for, and what is missing from it: "has made 40 of 41 adds". Empty if only its call or
/// answer is missing.
struct Awaited {
  base::Peer peer = base::kNobody;
  std::string what;
};

struct Wait {
  WaitKind kind = WaitKind::kGet;
  base::Peer who = base::kNobody;
  std::string table;     ///< empty if no table is involved
  uint64_t number = 0;   ///< which get or add of the worker, from 1, or its clock; 0 if not counted
  base::Nanos age{0};    ///< time since the wait began
  base::Nanos still{0};  ///< time since the last progress at the place of the wait
  std::vector<Awaited> awaited;
};

/// The call that waits: `get #41 of "weights"`.
std::string describe(const Wait& wait);

inline bool has_waited(const Wait& wait, base::Nanos span) { return std::min(wait.age, wait.still) >= span; }

}  // namespace mv::cluster
