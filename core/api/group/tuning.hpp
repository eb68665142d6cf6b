#pragma once
// What messages between the workers of a cluster cost, measured, and what groups would choose by that.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/cost.hpp"
#include "engine/collective/cost_fit.hpp"

namespace mv::api {

class Calls;

/// One transport, as the first two workers find it who reach each other by it.
struct TransportTuning {
  base::TransportKind transport = base::TransportKind::kTcp;
  std::array<int64_t, 2> workers{};
  bool beside = false;      ///< both are on one machine
  std::string why_not_shm;  ///< where they are, and it is TCP; as far as this process knows
  collective::Fit fit;
};

/// An all-reduce of all workers, by the way that the new costs choose.
struct Trial {
  uint64_t bytes = 0;
  collective::Choice choice;
  double seconds = 0;  ///< measured
};

struct Tuning {
  int64_t workers = 0, hosts = 0;
  std::vector<TransportTuning> transports;
  collective::Basis basis;    ///< the new costs; of transports that nobody takes the defaults
  base::TransportKind between{};   ///< the transport between most ranks: what the trials went by
  std::vector<Trial> trials;

  /// The setting collective_costs: what was measured, and nothing else.
  std::string setting() const;
};

/// Measures it; collective among all workers. MV_ESTATE where there is but one, MV_ECANCELED after a signal.
base::Result<Tuning> tune(Calls& calls);

}  // namespace mv::api
