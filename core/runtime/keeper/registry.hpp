#pragma once
// Names of clusters: at most one process at a time has a name, and publishes its address under it.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "runtime/keeper/address.hpp"

namespace mv::runtime::keeper {

/// The entry that rank 0 publishes. It contains no secret: everyone who may read the store can read it.
struct Entry {
  std::string address;  ///< "host:port" where it listens
  std::string host;     ///< the machine's name
  uint32_t pid = 0;
  std::string id;  ///< a random number that identifies the attempt
  bool operator==(const Entry&) const = default;
};
std::string write_entry(const Entry& entry);
/// nullopt if the text is not an entry.
std::optional<Entry> parse_entry(std::string_view text);

/// One name in one store. Calls block; make them on a thread that blocks all signals. One thread at a time, except for
/// cancel(). Errors: MV_EUNREACHABLE, MV_EAUTH, MV_ESYSTEM, MV_ECANCELED.
class Registry {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  virtual ~Registry() = default;
  /// Takes the name if nobody has it. Returns nothing if this process has the name now, otherwise the entry of the
  /// process that has it.
  virtual base::Result<std::optional<Entry>> claim(const Entry& entry, Deadline deadline) = 0;
  /// Takes the name from the process that has it, because the members have declared that process lost. Returns its
  /// entry if the name can't be taken yet, or if it is not one of the members: then another cluster has the name.
  /// @param members their addresses
  virtual base::Result<std::optional<Entry>> take_over(const Entry& entry, const std::vector<std::string>& members, Deadline deadline) = 0;
  /// @param attends  this process is a member that may take the name over, or will be one soon. While there are such members, no other process gets the
  ///                 name: the place of a process that has died, or has left, is theirs. Where a name stays taken for a while anyway, this does nothing
  virtual void attend(bool /*attends*/) {}
  /// The entry of the process that has the name.
  virtual base::Result<std::optional<Entry>> look(Deadline deadline) = 0;
  /// Waits for a change since the last look() or claim(). Returns then, or at the deadline, or a little earlier.
  virtual base::Status wait(Deadline deadline) = 0;
  /// Keeps the name that claim() has taken. To be called every keep_every(). MV_ESTATE: another process has the name
  /// now.
  virtual base::Status keep(Deadline deadline) = 0;
  virtual base::Nanos keep_every() const = 0;
  /// Gives the name back; also after cancel().
  virtual void release(Deadline deadline) = 0;
  /// For messages: how the name is kept, "by a lease of 10 s", "by a lock".
  virtual std::string kept_by() const = 0;
  /// How long the name may stay taken after its process has died.
  virtual base::Nanos free_after() const = 0;
  /// Ends calls soon. Any thread.
  virtual void cancel() noexcept = 0;
  virtual void abandon_after_fork() noexcept {}
};

/// @param auth see Etcd
/// @param heartbeat silence after which members count as lost: a lease lasts twice as long, at most a minute, so that a cluster has given its rank 0
///                  up before another process can take the name
std::unique_ptr<Registry> make_registry(const Address& address, const std::string& auth, base::Nanos heartbeat);

}  // namespace mv::runtime::keeper
