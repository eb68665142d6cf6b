#pragma once
// etcd as the keeper of a cluster's views.

#include <memory>
#include <string>

#include "base/clock.hpp"
#include "engine/cluster/keeper.hpp"
#include "transport/loop/loop.hpp"

namespace mv::runtime::keeper {

/// Makes the keeper that the setting names; null if the setting names none that can keep views (a folder can't). Its
/// revisions are those of etcd, which grow with each write of any key. They are the master's fencing tokens. The keeper
/// works on a thread of its own, and posts the results to the loop. Destroy it on the loop, or after the loop has
/// ended.
///
/// A second key has a random mark of the writer. After a time-out, the mark shows whether the write was carried out. It
/// also prevents a master from writing into an etcd that has lost its data, whose revisions start again.
///
/// read() and write() fail with MV_EUNREACHABLE after `patience`, with MV_EAUTH if etcd refuses this user, and with
/// MV_ESYSTEM if etcd refuses the request (a view of more than 1.5 MB). write() also fails with MV_ESTATE if etcd has
/// lost its data.
base::Result<std::unique_ptr<cluster::Keeper>> make_keeper(const std::string& setting, const std::string& auth, base::Nanos patience,
                                                           transport::Loop& loop);

}  // namespace mv::runtime::keeper
