#pragma once
// The master's list of the processes that have arrived, until the cluster is complete.

#include <string>
#include <vector>

#include "engine/cluster/self.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

class Arrivals {
 public:
  explicit Arrivals(const Self& self) : self_(self), sync_(self.sync), sync_said_(self.sync_said) {}

  /// The master itself, which has rank 0.
  void add_self();
  void add(const rpc::Asked& asked, const wire::Join& request);
  /// Whether a process fits the cluster. @param seen  its address as the transport sees it
  /// @param is_late  it wants a place in the complete cluster
  base::Status check(const wire::Join& request, const std::string& seen, bool is_late) const;
  /// Whether the requested rank is free.
  base::Status check_rank(const wire::Join& request) const;
  bool has(base::Peer peer) const;
  void lost(base::Peer peer);
  /// Forgets a process whose request was canceled; false if there is none.
  bool withdraw(const rpc::Asked& asked);

  bool all_here() const { return joiners_.size() >= self_.nodes; }
  /// The first view of the complete cluster: processes without a requested rank get the free ones in the order of their
  /// arrival. The ranks after theirs are the vacant places of servers that may join later, whose parts the others serve, and
  /// of workers.
  View view();
  /// The requests of all processes except the master.
  std::vector<rpc::Asked> asked() const;
  /// "only 2 of 4 processes have arrived; missing: rank 1, 3".
  std::string text() const;

 private:
  struct Joiner {
    Member member;
    int64_t wants_rank = -1;
    rpc::Asked asked;
  };
  void warn_of_loopback() const;
  Member& add_vacant_place(View& view, int32_t role) const;
  void add_vacant_places(View& view) const;

  const Self& self_;
  bool sync_, sync_said_;  ///< as the joiners have set it so far
  std::vector<Joiner> joiners_;
};

}  // namespace mv::cluster
