#pragma once
// The servers as the workers' side of tables sees them, and the requests to them.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/pool.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/table/client/timers.hpp"

namespace mv::table {

/// Loop thread only.
struct Servers {
  /// `rpc` is for requests to parts of tables, which may move; `processes` for requests to the processes themselves.
  Servers(const base::Clock& clock, rpc::Client& rpc, rpc::Client& processes, base::Pool& pool)
      : clock(clock), rpc(rpc), processes(processes), pool(pool) {}
  /// Call it once the ranks are known.
  void start(const cluster::View& known) {
    view = &known;
    for (const cluster::Member* server : known.servers()) shared->push_back(server->peer);
  }
  /// The processes that serve now. If nobody serves a part, its lost server is among them, so that errors name it.
  std::vector<base::Peer> serving() const {
    std::vector<base::Peer> found;
    for (const cluster::Member* server : view->servers()) {
      const base::Peer now = view->serving(*server), peer = now != base::kNobody ? now : server->peer;
      if (std::ranges::find(found, peer) == found.end()) found.push_back(peer);
    }
    return found;
  }
  std::string name(base::Peer peer) const { return view->name(peer); }
  base::Nanos next_deadline() const { return timers.next(); }
  void tick() { timers.tick(clock.now()); }

  const base::Clock& clock;
  rpc::Client& rpc;
  rpc::Client& processes;
  base::Pool& pool;
  wire::FrameBuilder builder;
  const cluster::View* view = nullptr;
  const std::shared_ptr<std::vector<base::Peer>> shared = std::make_shared<std::vector<base::Peer>>();
  const std::vector<base::Peer>& peers = *shared;  ///< by server id
  Timers timers;
};

}  // namespace mv::table
