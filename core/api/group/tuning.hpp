#pragma once
// Tuning: the measured costs of messages between a cluster's workers, and the algorithms that groups would choose by
// them.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/cost.hpp"
#include "engine/collective/cost_fit.hpp"
#include "intranode/choices.hpp"

namespace mv::api {

class Calls;

/// One transport, measured between the first two workers that reach each other by it.
struct TransportTuning {
  base::TransportKind transport = base::TransportKind::kTcp;
  std::array<int64_t, 2> workers{};
  bool beside = false;      ///< both are on one machine
  std::string why_not_shm;  ///< why TCP if they are on one machine, as far as this process knows
  collective::Fit fit;
};

/// An all-reduce of all workers, with the algorithm that the new costs choose.
struct Trial {
  uint64_t bytes = 0;
  collective::Choice choice;
  double seconds = 0;  ///< measured
};

struct Tuning {
  int64_t workers = 0, hosts = 0;
  std::vector<TransportTuning> transports;
  collective::Basis basis;    ///< the new costs; defaults for transports that no pair uses
  base::TransportKind between{};   ///< the transport between most ranks, which the trials used
  std::vector<Trial> trials;
  std::vector<intranode::Decision> algorithms;  ///< of all-reduces in shared memory, by class; empty if not all ranks share memory

  /// The value of the setting collective_costs: measured costs only.
  std::string setting() const;
};

/// Runs the trials of all classes up to 16 MiB that the setting `tuning` asks for; collective among all workers.
base::Status tune_shared(Calls& calls, Tuning& tuning);
/// Runs the measurement; collective among all workers. MV_ESTATE if there is only one, MV_ECANCELED after a signal.
base::Result<Tuning> tune(Calls& calls);

}  // namespace mv::api
