#pragma once
// What happens to the membership of a cluster while it runs.

#include <array>
#include <cstdint>
#include <string>

namespace mv::cluster {

/// By mv_membership_kind.
enum class Change : uint8_t { kJoined, kLeft, kLost, kDraining, kDrained, kTookOver };
inline constexpr size_t kChanges = 6;
inline constexpr std::array<const char*, kChanges> kChangeNames = {"joined", "left", "lost", "draining", "drained", "took_over"};

/// One change of the membership that this node has learnt of.
struct MembershipEvent {
  Change change = Change::kJoined;
  uint32_t rank = 0;
  int32_t role = 0;
  uint32_t part = 0;   ///< kTookOver: the rank of the server whose tables this one serves now
  uint64_t epoch = 0;  ///< of the first view that contains the change
  std::string reason;
};

}  // namespace mv::cluster
