// What a coordinator does when servers, or the coordinator before it, are lost.

#include <algorithm>
#include <iterator>

#include "base/log.hpp"
#include "engine/checkpoint/coordinator.hpp"

namespace mv::checkpoint {

/// Ends calls that a lost coordinator has already answered to another worker, which therefore does not repeat them.
void Coordinator::end_what_has_ended() {
  for (auto& [worker, requests] : waiting_) std::erase_if(requests, [this](const Request& request) { return has_ended(request); });
}

bool Coordinator::has_ended(const Request& request) {
  if (!request.again || request.call == 0) return false;
  const Ended* latest = nullptr;
  for (const auto& [worker, ended] : ended_)
    if (ended.last >= request.call && (latest == nullptr || ended.last < latest->last)) latest = &ended;
  if (latest == nullptr) return false;
  const bool is_known = latest->last == request.call;
  if (!is_known && !request.resumed.empty()) return false;  // the files show how it has ended
  if (!is_known || latest->status != MV_OK) {
    server_.fail(request.asked, base::error(is_known ? latest->status : MV_EPEERLOST, "the checkpoint failed with its coordinator, which was lost"));
  } else if (request.loads) {
    Clocks clocks;
    for (const auto& table : served_.served(0)->entries({})) clocks.emplace(table.spec.name, table.clock);
    const auto written = write_clocks(clocks);
    if (!written.ok()) return server_.fail(request.asked, written.status()), true;
    server_.answer(request.asked, builder_.finish(wire::Body::Loaded, wire::CreateLoaded(builder_.fbb(), request.call), written.value()));
  } else {
    server_.answer(request.asked, builder_.answer({}));
  }
  return true;
}

// ---- a save that a lost coordinator has begun

void Coordinator::calls_ended(base::Peer worker, const wire::CallsEnded& message) {
  Ended& ended = ended_[worker];
  ended = {message.last(), static_cast<mv_status>(message.status())};
  if (message.open() != nullptr) ended.open.insert(message.open()->begin(), message.open()->end());
  for (auto ending = endings_.begin(); ending != endings_.end();) {
    auto& [id, of] = *ending;
    if (of.resumed && of.call != 0 && !ended.open.contains(of.call)) of.untold.erase(worker);
    ending = of.over && of.untold.empty() ? endings_.erase(ending) : std::next(ending);
  }
}

/// The lost coordinator may have told other workers of a save that continues here, or has ended here: this worker takes part in it.
bool Coordinator::joins(const Request& request) {
  if (request.loads) return false;
  const auto is_it = [&](const std::string& path, uint64_t call) {
    return request.resumed.empty() ? request.call != 0 && call == request.call : path == request.resumed;
  };
  for (auto& [id, ending] : endings_) {
    if (!ending.resumed || !is_it(ending.path, ending.call)) continue;
    ending.untold.insert(request.asked.client);
    return answer_saving(request.asked, id, ending), true;
  }
  if (job_ == nullptr || !job_->resumes || !is_it(job_->path, job_->call)) return false;
  job_->askers.push_back(request.asked);
  return true;
}

void Coordinator::resume(const Request& request) {
  const auto job = job_ = std::make_shared<Job>();
  job->id = ++jobs_;
  job->resumes = true;
  job->path = job->asked_path = request.resumed;
  job->number = request.number;
  job->keep = request.keep;
  job->call = request.call;
  job->askers.push_back(request.asked);
  job->workers.push_back(request.asked.client);
  for (const cluster::Member* worker : view_->workers()) {  // they will ask, too, unless this call has ended for them
    if (job->call == 0 || worker->peer == request.asked.client) continue;
    const auto known = ended_.find(worker->peer);
    if (known == ended_.end() || known->second.open.contains(job->call)) job->workers.push_back(worker->peer);
    for (auto& theirs = waiting_[worker->peer]; !theirs.empty() && theirs.front().again && joins(theirs.front());) theirs.pop_front();
  }
  base::log_info("checkpoint {}: continues, after its coordinator was lost", job->path);
  add_parts();
  set_phase(Phase::kSnapshots);
  // The servers must not wait for this one's disk, which may be busy for long: they keep snapshots only for a while.
  job->is_taken_over = false;
  storage_->take_over(job->path, [this, job](const base::Result<bool>& complete) {
    if (job == job_) taken_over(complete);
  });
  ask_all(snapshot_of(nullptr, true), &Coordinator::snapshots_taken);
}

void Coordinator::taken_over(const base::Result<bool>& complete) {
  job_->is_taken_over = true;
  job_->is_complete = complete.ok() && complete.value();
  if (complete.ok()) return;
  const bool failed_before = complete.status().code() == MV_ENOTFOUND;
  job_->error = base::error(failed_before ? MV_EPEERLOST : complete.status().code(), "the checkpoint failed with its coordinator, which was lost: {}",
                            complete.status().text());
}

// ---- servers that are lost

bool Coordinator::may_begin_again() const { return job_->lost_server && !job_->resumes && (job_->loads || !job_->askers.empty()); }

/// Whether another server can continue the save with its snapshots. This one is lost.
bool Coordinator::may_follow(size_t server) const {
  if (job_->loads || !(job_->resumes || job_->phase == Phase::kWriting) || !job_->error.ok() || !served_.can_move() || !no_master_.ok()) return false;
  return client_.is_lost(job_->parts[server].server) && view_->serving(*view_->servers()[server]) != base::kNobody;
}

void Coordinator::follow(size_t server, std::function<void()> ask_again) {
  job_->parts[server].ask_again = std::move(ask_again);
  follow_moved();
}

void Coordinator::await_servers() {
  base::log_info("checkpoint {}: begins again: {}", job_->path, job_->error.text());
  set_phase(Phase::kAwaitingServers);
  no_master_.ok() ? servers_changed() : master_lost(no_master_);
}

void Coordinator::servers_changed() {
  if (view_ == nullptr) return;
  follow_moved();
  if (job_ == nullptr || job_->phase != Phase::kAwaitingServers) return settle();
  for (const cluster::Member* server : view_->servers()) {
    const base::Peer by = view_->serving(*server);
    if (by == base::kNobody) return give_up(base::error(MV_EPEERLOST, "{}; no other process has a copy of its tables", job_->error.text()));
    if (client_.is_lost(by)) return;  // its stand-in has not been named yet
  }
  begin_again();
}

void Coordinator::begin_again() {
  const auto again = std::make_shared<Job>();
  again->id = job_->id;
  again->loads = job_->loads;
  again->asked_path = job_->asked_path;
  again->keep = job_->keep;
  again->call = job_->call;
  again->askers = job_->askers;
  again->workers = job_->workers;
  if (!job_->loads) again->clocks = job_->clocks;
  job_ = again;
  start_job();
}

void Coordinator::master_lost(const base::Status& why) {
  no_master_ = why;
  if (job_ == nullptr) return;
  if (job_->phase == Phase::kAwaitingServers) return give_up(base::error(MV_EPEERLOST, "{}, and {}", job_->error.text(), why.text()));
  const auto job = job_;
  for (ServerPart& part : job->parts)  // the lost ones fail with the reason
    if (job_ == job && part.ask_again) std::exchange(part.ask_again, nullptr)();
}

}  // namespace mv::checkpoint
