#pragma once
// How the processes of a cluster find each other by its name. One of them becomes rank 0 and publishes its address; the
// others wait for the address.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/keeper/registry.hpp"
#include "transport/fd.hpp"

namespace mv::runtime::keeper {

/// What a process knows when it arrives.
struct Arrival {
  std::string keeper, auth;     ///< the settings
  int64_t rank = -1;            ///< 0: becomes rank 0 or fails; above: never; -1: the first one does
  std::string bind, advertise;  ///< settings of the same names, for rank 0
  base::Nanos patience{};       ///< for rank 0 to appear
  base::Nanos heartbeat{};      ///< silence after which a member counts as lost
  std::string master{};         ///< the setting: the processes meet there instead, and rank 0 only publishes its address under the name
  int listen_fd = -1;           ///< of rank 0: its socket at `master`, if that listens already; stays the caller's
  bool may_succeed = false;     ///< the members may make this process their master
};

/// The result for one process.
struct Place {
  bool is_master = false;
  std::string master;       ///< "host:port" where the others meet rank 0
  std::string published;    ///< by rank 0: its address under the name
  transport::Fd listening;  ///< of rank 0: its socket, which already listens at the published address; none if that is `Arrival::listen_fd`
};

/// Works on a thread of its own until this process is a member. At the master, and at those that may succeed it, the thread lives as long as the
/// object: it keeps the name.
class Rendezvous {
 public:
  /// MV_EINVAL, MV_ESYSTEM.
  static base::Result<std::unique_ptr<Rendezvous>> begin(Arrival arrival);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Gives the name back. Blocks for at most two seconds or so.
  ~Rendezvous();

  /// Waits for the place. MV_EINTR after a signal: call again. MV_ETIMEOUT: rank 0 did not appear; MV_EADDRINUSE: a living process has the name;
  /// MV_EUNREACHABLE: the keeper does not answer, or rank 0 can't be reached at its address; MV_EAUTH; MV_EINVAL.
  base::Result<Place> wait();
  /// Where rank 0, or the master, is now, if that is another address than the one that was returned last: by wait(), or by this. Until settle().
  /// Does not wait.
  std::optional<std::string> moved();
  /// This process is a member, or will never be one. Does not wait.
  void settle();
  /// The members have made this process, at `address`, their master. Takes the name from its predecessor, so that new
  /// processes find it. Does not wait. To be called after wait() has returned the place.
  /// @param members their addresses: the name is taken from one of them, and from nobody else
  void succeed(const std::string& address, std::vector<std::string> members);
  /// One line for humans: the keeper, the cluster's name, and their state. Any thread.
  std::string state() const;
  void abandon_after_fork() noexcept;

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Listening {
    transport::Fd fd;
    std::string address;  ///< to be told to others
  };
  Rendezvous(Arrival arrival, Address address);
  void run();
  void watch(std::string known);
  bool pause(base::Nanos span);
  void take_over();
  base::Result<Listening> listen(const std::string& where) const;
  base::Result<std::string> advertised(const std::string& bound) const;
  base::Result<Place> meet(Deadline deadline);
  base::Result<Place> wait_for_rank_0(Deadline deadline);
  base::Result<Place> announce(Deadline deadline);
  base::Result<Place> compete(Listening listening, Deadline deadline);
  base::Status too_late(const std::optional<Entry>& found, const base::Status& unreachable) const;
  void keep();
  void set_state(std::string state);
  bool stopping() const { return stopping_.load(); }
  /// With a master, the process that listens there is rank 0. It never joins another cluster that has the name.
  bool is_rank_0() const { return arrival_.rank == 0 || !arrival_.master.empty(); }

  const Arrival arrival_;
  const Address address_;
  const std::unique_ptr<Registry> registry_;
  transport::Fd met_;  ///< an eventfd, readable once result_ is there
  std::optional<base::Result<Place>> result_;
  std::atomic<bool> stopping_{false}, settled_{false};
  std::mutex idle_mutex_;
  std::condition_variable idle_;
  // Under idle_mutex_.
  std::optional<std::string> moved_;
  std::optional<Entry> succeeding_;  ///< this process, once it is to take the name
  std::vector<std::string> members_;
  mutable std::mutex state_mutex_;
  std::string state_;
  const char* kept_for_ = "rank 0";  // used by the thread: "rank 0" or "the master"
  std::thread thread_;
};

/// What a keeper stores under a cluster's name.
struct Standing {
  std::optional<Entry> rank_0{};
  std::optional<int64_t> lease_left{};  ///< seconds, in etcd
  uint64_t view_revision = 0;           ///< 0: no view
};
/// For processes that do not join. Blocks. MV_EINVAL, MV_EUNREACHABLE, MV_EAUTH, MV_ESYSTEM.
base::Result<Standing> look_up(const std::string& keeper, const std::string& auth, base::Nanos patience);
/// The address of rank 0 of a running cluster. Also MV_ENOTFOUND: nobody has the name.
base::Result<std::string> find_rank_0(const std::string& keeper, const std::string& auth, base::Nanos patience);

}  // namespace mv::runtime::keeper
