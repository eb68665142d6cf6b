#pragma once
// Group: workers that make collective operations together. All ranks use messages, or all use shared memory.

#include <memory>
#include <string>
#include <vector>

#include "api/call/options.hpp"
#include "engine/collective/operation.hpp"

namespace mv::api {

class Group;
using GroupRef = std::shared_ptr<Group>;

struct GroupInfo {
  int64_t rank = 0, size = 1, hosts = 1;
  std::string transport;  ///< "shm" or "messages"
  uint64_t sent = 0, received = 0;  ///< bytes of payload
  uint64_t operations = 0;          ///< begun by this rank
  base::Status broken;              ///< why the group is broken; ok while it is not
  int64_t elder = 0;                ///< the lowest of the ranks that have been members for the longest time
  uint32_t generation = 0;          ///< how many times groups have shrunk and grown to this one
  std::string tuning;               ///< how its all-reduces are chosen
  std::string collective = "own";   ///< the implementation of all-reduces: "own", "mpi" or "nccl"
  std::string collective_why;       ///< and why
};

/// What a member wants of a group that grows.
struct Growth {
  std::string name;   ///< the name that newcomers use
  uint32_t size = 0;  ///< the least number of ranks
};

/// The bytes of out[i] and in[i] on this rank. If one of the two has a part for each rank, `part` is its size; else 0.
struct Sizes {
  uint64_t out = 0, in = 0, part = 0;
};
Sizes sizes_of(const collective::Operation& operation, size_t i, uint64_t rank, uint64_t ranks);
/// MV_EINVAL or MV_EDTYPE if rank `rank` of a group of `size` ranks cannot carry out the operation.
base::Status check_operation(const collective::Operation& operation, int64_t rank, int64_t size);

/// An all-reduce in which the caller combines the values, one neighbour's after another's. One thread at a time.
class CustomReduction {
 public:
  virtual ~CustomReduction() = default;
  /// The next values to combine into the caller's; null: none are left, the result is complete. MV_EINTR: call again.
  virtual base::Result<const std::vector<collective::Array>*> next() = 0;
  /// Reports that these values are combined. An error makes the operation fail on all ranks.
  virtual base::Status done(const base::Status& status) = 0;
  /// Withdraws an unfinished operation. Returns the number of contributors if the operation succeeded.
  virtual base::Result<uint64_t> end() = 0;
};
using CustomReductionRef = std::shared_ptr<CustomReduction>;

/// These options, for a blocking call that a signal withdraws.
inline CallOptions blocking(const CallOptions& options) {
  CallOptions result = options;
  result.mode = Mode::kBlocking;
  result.keep_on_interrupt = false;
  return result;
}

/// All ranks must make the same calls in the same order. Any thread; threads must agree on the order of their calls.
///
/// Errors: MV_EDISAGREE on all ranks if their calls differ; the group stays usable. The other errors break the group:
/// MV_EPEERLOST (with the rank's name) if a rank is lost or has left, MV_ETIMEOUT (with the names of the missing
/// ranks), and MV_EINTR if a call is withdrawn. All later operations then fail at once, and shrink() or grow() makes a
/// new group. The contents of the output are undefined.
class Group {
 public:
  virtual ~Group() = default;
  virtual GroupInfo info() = 0;
  /// Worker ids, by rank.
  virtual const std::vector<int64_t>& members() const = 0;

  /// Whether the arrays of this operation of run() may be in the memory of devices. It may change, but run() still takes
  /// them then.
  virtual bool takes_devices(const collective::Operation&) const { return false; }
  /// Any operation except kCustom and kDrain. Its memory is lent until the call ends. Only the two ranks of a kSend or
  /// kRecv make it; it may overlap with other operations.
  virtual Started run(collective::Operation&& operation, const CallOptions& options) = 0;
  /// Waits for the other ranks' next operation. If they reduce, run() of that shape must follow. Blocking only.
  virtual base::Result<collective::Shape> drain(const CallOptions& options) = 0;
  /// kCustom; `operation.in` is empty. The memory is lent until end().
  virtual base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) = 0;

  /// Makes a group of the surviving ranks; collective among them. Blocking only.
  virtual base::Result<GroupRef> shrink(const CallOptions& options) = 0;
  /// Makes a group of the surviving ranks and of workers that join by this name; collective among them. Null if the
  /// group is not broken, has the wanted size, and no worker asks to join; then the group continues. Blocking only.
  virtual base::Result<GroupRef> grow(const Growth& growth, const CallOptions& options) = 0;
  /// Leaves the group. Ranks that wait for this rank, now or later, get an error that names it. Idempotent.
  virtual base::Status close() = 0;
  /// close(), and breaks the group: the other ranks get an error that names this rank and has the reason. Idempotent.
  virtual base::Status abort(const std::string& reason) = 0;
  /// Breaks the group and notifies the other ranks at once. For a rank that ran out of memory before an operation
  /// began, and so cannot carry out what the others expect.
  virtual void give_up(const base::Status& why) noexcept = 0;
};

}  // namespace mv::api
