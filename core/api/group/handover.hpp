#pragma once
// Who carries out the all-reduces of a group: this library, or MPI. Decided when the group is opened, by all ranks alike.
//
//   collective=own   this library
//   collective=mpi   MPI, for all operations that it can carry out (engine/collective/reducer.hpp). If it can't be used for
//                    this group, this library, and a warning
//   collective=auto  where transport=mpi is used and the ranks do not share memory: the faster one, by a measurement when
//                    the group is opened. Otherwise this library
//
//   collective=nccl  this library; arrays on devices by NCCL, see device_group.hpp, with a warning if it can't be used
//
// The setting of the lowest rank counts. Only a group that was opened is handed over: in one that has shrunk or grown, MPI
// may not have noticed which processes are lost.

#include <cstdint>
#include <span>
#include <string>

#include "api/group/message_group.hpp"

namespace mv::api {

enum class Collective : uint32_t { kOwn, kAuto, kMpi, kNccl };

/// What each rank tells the others about MPI.
struct JobPlace {
  uint64_t job = 0;   ///< identifies the MPI job; 0: MPI is not in use
  int32_t rank = -1;  ///< in that job
  Collective collective = Collective::kOwn;
};
JobPlace job_place(Calls& calls);

/// Whether MPI is to be tried, and if not, why. The same on all ranks.
struct Verdict {
  bool tries = false, measures = false;
  std::string why;
};
/// Whether any rank of a group may want MPI, or has devices: for groups that are too large for everybody to tell everybody. Collective.
base::Result<bool> may_hand_over(Calls& calls, MessageGroup& group, const CallOptions& options);
Verdict judge(std::span<const JobPlace> places, uint32_t generation, bool shares_memory);

/// Makes MPI ready for the group, measures where that is asked for, and hands the all-reduces over; notes the result in the
/// group. Collective. An error only where the group itself fails.
base::Status hand_over(Calls& calls, MessageGroup& group, std::span<const JobPlace> places, const Verdict& verdict, const CallOptions& options);

}  // namespace mv::api
