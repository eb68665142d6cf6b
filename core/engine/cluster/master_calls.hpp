#pragma once
// This node's requests to the master.

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cluster/election.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/rpc/client.hpp"

namespace mv::cluster {

/// Owns the requests to the master that have not ended, and counts the barriers that this worker has passed. Sends
/// Barrier, Resize and Leave: these are repeated to the next master. Sends Drain and HandOver, which a server that
/// drains repeats itself. Loop thread only.
class MasterCalls {
 public:
  MasterCalls(rpc::Client& client, const Roster& roster, const Standing& standing, const Election& election)
      : client_(client), roster_(roster), standing_(standing), election_(election) {}

  // see Cluster
  void barrier(rpc::PendingRef pending);
  void cancel_barrier(const rpc::Pending* pending);
  void abandon_barrier(const rpc::Pending* pending, const base::Status& status);
  void resize(uint32_t servers, rpc::PendingRef pending);
  void leave(rpc::PendingRef pending);
  void drain(rpc::PendingRef pending);
  void hand_over(const std::vector<uint32_t>& parts, rpc::PendingRef pending);

  /// There is a new master: it is asked what the former one has not answered.
  void repeat_all();
  /// No master will be asked.
  void end_all(const base::Status& why);

  /// The barriers that this worker has passed, and the losses that have failed one.
  uint64_t passed() const { return passed_; }
  uint64_t told() const { return told_; }
  void begin(uint64_t passed, uint64_t told) { passed_ = passed, told_ = told; }

 private:
  class Visit;

  void ask(const std::shared_ptr<Visit>& visit);
  void answered(const std::shared_ptr<Visit>& visit, const base::Status& status, const wire::Message* answer);
  static void end(Visit& visit, const base::Status& status);
  std::shared_ptr<Visit> visit_of(const rpc::Pending* pending) const;

  rpc::Client& client_;
  const Roster& roster_;
  const Standing& standing_;
  const Election& election_;
  wire::FrameBuilder builder_;
  std::vector<std::shared_ptr<Visit>> visits_;
  uint64_t passed_ = 0, told_ = 0;
};

}  // namespace mv::cluster
