#include "engine/table/server/roster.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
    if (worker->state == cluster::MemberState::kHere) active_.insert(worker->peer);
  }
  worker_names_ = std::make_shared<const std::vector<std::string>>(view.worker_names());
}

void Roster::replaced(size_t id, base::Peer by) {
  workers_[id] = by;
  std::vector<std::string> names = *worker_names_;
  names[id] = view_->name(by);
  worker_names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
  worker_ids_.emplace(by, id);
  active_.insert(by);
}

}  // namespace mv::table
