#include "engine/table/server/roster.hpp"

#include <algorithm>
#include <memory>

namespace mv::table {

void Roster::start(const cluster::View& view, base::Peer self, bool has_copy) {
  view_ = &view;
  has_copy_ = has_copy;
  sync_ = view.sync;
  servers_ = view.servers().size();
  index_ = static_cast<uint64_t>(std::max<int64_t>(0, view.server_id(self)));
  for (const cluster::Member* worker : view.workers()) {
    worker_ids_.emplace(worker->peer, workers_.size());
    workers_.push_back(worker->peer);
    if (worker->state == cluster::State::kHere) active_.insert(worker->peer);
  }
  name_workers();
}

void Roster::replaced(size_t id, base::Peer by) {
  workers_[id] = by;
  name_workers();
  worker_ids_.emplace(by, id);
  active_.insert(by);
}

void Roster::name_workers() {
  auto names = std::make_shared<std::vector<std::string>>();
  for (const base::Peer worker : workers_) names->push_back(view_->name(worker));
  worker_names_ = std::move(names);
}

}  // namespace mv::table
