#pragma once
// How far this node has joined the cluster, and whether it still counts.

#include <cassert>
#include <cstdint>

#include "base/result.hpp"

namespace mv::cluster {

enum class Phase : uint8_t { kJoining, kConnecting, kReady, kFailed };

/// Whether this node has joined, has handed its parts over, has given the role of the master away, or is cut off from
/// the decisions about the members. Loop thread only.
class Standing {
 public:
  Phase phase() const { return phase_; }
  void set_phase(Phase next) {
    assert(next > phase_);
    phase_ = next;
  }
  /// "joining", "connecting", "ready" or "failed".
  const char* phase_name() const {
    constexpr const char* kNames[] = {"joining", "connecting", "ready", "failed"};
    return kNames[static_cast<uint8_t>(phase_)];
  }
  /// The number of the first view that this node had.
  uint64_t joined_epoch() const { return joined_epoch_; }
  void set_joined_epoch(uint64_t epoch) { joined_epoch_ = epoch; }

  /// MV_OK, or why this node hears of no more decisions about the members.
  const base::Status& why_cut_off() const { return cut_off_; }
  bool is_cut_off() const { return !cut_off_.ok(); }
  void cut_off(const base::Status& why) { cut_off_ = why; }
  /// This node hears of decisions again.
  void reconnect() { cut_off_ = {}; }
  /// This process was declared lost; or it is a master without a majority; or it is a server that no process can tell
  /// whether the workers that it has lost are lost. Other processes serve its parts, or may do so later.
  bool is_deposed() const { return is_cut_off() && is_deposed_; }
  /// As is_deposed(), also before the reason is known.
  bool is_to_be_deposed() const { return is_deposed_; }
  void set_deposed() { is_deposed_ = true; }

  /// This node has handed its parts over.
  bool is_drained() const { return is_drained_; }
  void set_drained() { is_drained_ = true; }
  /// Without replicas: this node was the master, and another server has the role now.
  bool has_given_role() const { return has_given_role_; }
  void set_given_role() { is_drained_ = has_given_role_ = true; }

 private:
  Phase phase_ = Phase::kJoining;
  uint64_t joined_epoch_ = 0;
  base::Status cut_off_;
  bool is_deposed_ = false;
  bool is_drained_ = false;
  bool has_given_role_ = false;
};

}  // namespace mv::cluster
