#pragma once
// Workers that reduce together, as callers use them. By messages or over shared memory: all of a group's ranks the same way.

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
  uint64_t operations = 0;          ///< that this rank has begun
  base::Status broken;              ///< why the group can't go on; ok while it can
};

/// MV_EINVAL or MV_EDTYPE for what no group of `size` ranks carries out.
base::Status check_operation(const collective::Operation& operation, int64_t size);

/// An allreduce whose values the caller reduces, one neighbour's after the other's. One thread at a time.
class CustomReduction {
 public:
  virtual ~CustomReduction() = default;
  /// The next values to be reduced into the caller's; null: there are none, the result is here. MV_EINTR: to be called again.
  virtual base::Result<const std::vector<collective::Array>*> next() = 0;
  /// They have been; or it failed, and the operation fails on all ranks.
  virtual base::Status done(const base::Status& status) = 0;
  /// Withdraws what is not over. The contributors, where it went well.
  virtual base::Result<uint64_t> end() = 0;
};
using CustomReductionRef = std::shared_ptr<CustomReduction>;

/// These options, but waited for by the caller, and not left running by a signal.
inline CallOptions blocking(const CallOptions& options) {
  CallOptions result = options;
  result.mode = Mode::kBlocking;
  result.keep_on_interrupt = false;
  return result;
}

/// All ranks make the same calls in the same order. Any thread; the order of several threads' calls is theirs to agree on.
///
/// What goes wrong: MV_EDISAGREE on all ranks where they don't, the group goes on; MV_EPEERLOST with the rank's name when one is lost or
/// has left, MV_ETIMEOUT with the missing ranks' and MV_EINTR where a call is withdrawn: the group is broken, all of its further
/// operations fail at once, and shrink() makes another one. What was to be written is undefined then.
class Group {
 public:
  virtual ~Group() = default;
  virtual GroupInfo info() = 0;
  /// Worker ids, by rank.
  virtual const std::vector<int64_t>& members() const = 0;

  /// Anything but kCustom and kDrain. Its memory is lent until the call is over.
  virtual Started run(collective::Operation operation, const CallOptions& options) = 0;
  /// Waits for what the others do next. Where they reduce, run() of that shape is to follow; blocking only.
  virtual base::Result<collective::Shape> drain(const CallOptions& options) = 0;
  /// kCustom; `operation.in` is empty. The memory is lent until end().
  virtual base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) = 0;

  /// A group of those who are not lost; collective among them. Blocking only.
  virtual base::Result<GroupRef> shrink(const CallOptions& options) = 0;
  /// Others who wait for this rank, or will, get an error that names it. Idempotent.
  virtual base::Status close() = 0;
  /// This rank can't go on with what the others count on, for want of memory before an operation has begun: breaks the group, and the
  /// others hear of it at once.
  virtual void give_up(const base::Status& why) noexcept = 0;
};

}  // namespace mv::api
