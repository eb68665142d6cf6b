#include "engine/checkpoint/coordinator.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "wire/text.hpp"

namespace mv::checkpoint {

using namespace std::chrono_literals;

namespace {

/// Interval between polls of the servers, which grows during a save: short for small files, long for large ones.
constexpr base::Nanos kFirstRepeat = 2ms;
constexpr base::Nanos kLongestRepeat = 100ms;
constexpr base::Nanos kNoticeAfter = 10s;

/// A Pending that calls a function.
class Answer final : public rpc::Pending {
 public:
  using Finish = std::function<void(const base::Status&, const wire::Message*)>;
  explicit Answer(Finish finish) : finish_(std::move(finish)) {}
  void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte>) override {
    finish_(status, answer);
  }

 private:
  const Finish finish_;
};

}  // namespace

// ---- requests of workers

void Coordinator::on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload) {
  if (storage_ == nullptr) return server_.fail(asked, base::Status(MV_ENOSYS, "server 0 has no storage for checkpoints"));
  // With back-ups, the view that makes this process the coordinator may still be on its way.
  if (view_ == nullptr || (served_.served(0) == nullptr && !served_.can_move()))
    return server_.fail(asked, base::Status(MV_EPROTOCOL, "only server 0 handles checkpoint requests"));
  if (const auto* save = request.body_as_Save()) {
    auto clocks = read_clocks(payload);
    if (!clocks) return server_.fail(asked, base::Status(MV_EPROTOCOL, "a request to save has a damaged list of clocks"));
    return ask_for({asked, false, wire::text_of(save->directory()), save->keep(), save->call(), save->again(), wire::text_of(save->path()), save->number(),
                    std::move(*clocks)},
                   save->alone());
  }
  if (const auto* load = request.body_as_Load())
    return ask_for({asked, true, wire::text_of(load->path()), 0, load->call(), load->again()}, false);
  if (const auto* ended = request.body_as_CallsEnded()) {
    calls_ended(asked.client, *ended);
    server_.answer(asked, builder_.answer({}));
    return settle();
  }
  if (const auto* question = request.body_as_Saved()) return saved(asked, *question);
  server_.fail(asked,
               base::error(MV_EPROTOCOL, "server 0 does not understand {}", wire::EnumNameBody(request.body_type())));
}

void Coordinator::ask_for(Request request, bool alone) {
  const base::Peer worker = request.asked.client;
  const cluster::Member* member = view_->find(worker);
  if (member == nullptr || !member->is_worker() || !is_here(*member))
    return server_.fail(request.asked, base::Status(MV_ESTATE, "only workers can request checkpoints"));
  if (!request.resumed.empty()) {
    resumes_.push_back(std::move(request));
    return settle();
  }
  if (request.again && joins(request)) return;
  if (alone) {
    if (job_ != nullptr || !alone_.empty())
      return server_.fail(request.asked, base::Status(MV_ESTATE, "another checkpoint is being saved or loaded"));
    alone_.push_back(std::move(request));
    return settle();
  }
  if (auto& untold = untold_[worker]; !untold.empty()) {
    server_.fail(request.asked, untold.front());
    return untold.pop_front();
  }
  if (waits_since_ == base::kNever) waits_since_ = clock_.now();
  if (next_notice_ == base::kNever) next_notice_ = clock_.now() + kNoticeAfter;
  request.since = clock_.now();
  waiting_[worker].push_back(std::move(request));
  settle();
}

void Coordinator::on_cancel(const rpc::Asked& asked) {
  auto& mine = waiting_[asked.client];
  const auto waits = std::find_if(mine.begin(), mine.end(), [&](const Request& request) { return request.asked == asked; });
  if (std::erase_if(resumes_, [&](const Request& request) { return request.asked == asked; }) > 0)
    return server_.fail(asked, base::Status(MV_ETIMEOUT, "the save continues"));
  if (waits != mine.end()) {
    const base::Status why =
        base::error(MV_ETIMEOUT, "{}: still waiting for {}", waits->loads ? "loading a checkpoint" : "saving a checkpoint", missing_workers());
    mine.erase(waits);
    return server_.fail(asked, why);
  }
  if (job_ == nullptr || std::erase(job_->askers, asked) == 0) return;
  const bool goes_on = job_->resumes || job_->phase == Phase::kRestoring || (job_->phase == Phase::kAwaitingServers && job_->loads);
  server_.fail(asked, base::error(MV_ETIMEOUT, "checkpoint {}: still waiting for {}; it {}", job_->path,
                                  missing_servers(), goes_on ? "continues" : "is cancelled"));
  // Later changes of this worker must not get into a save, and no worker may continue from a load that not all wait
  // for.
  if (!goes_on) give_up(base::error(MV_ETIMEOUT, "checkpoint {}: cancelled, because {} stopped waiting", job_->path, view_->name(asked.client)));
}

/// The job ends with this error, unless another error ends it first.
void Coordinator::give_up(const base::Status& why) {
  if (job_->error.ok() || std::exchange(job_->lost_server, false)) job_->error = why;
  if (job_->phase == Phase::kAwaitingServers) job_->loads ? load_over() : save_over(job_->error);
}

void Coordinator::worker_finished(base::Peer worker) {
  if (view_ == nullptr) return;
  waiting_.erase(worker);
  untold_.erase(worker);
  ended_.erase(worker);
  for (auto ending = endings_.begin(); ending != endings_.end();) {
    ending->second.untold.erase(worker);
    ending = ending->second.over && ending->second.untold.empty() ? endings_.erase(ending) : std::next(ending);
  }
  std::erase_if(resumes_, [worker](const Request& request) { return request.asked.client == worker; });
  settle();
}

void Coordinator::worker_lost(base::Peer worker, const base::Status& why) {
  if (view_ == nullptr) return;
  const bool anyone_waits =
      std::any_of(waiting_.begin(), waiting_.end(), [](const auto& entry) { return !entry.second.empty(); });
  const base::Status status = base::error(MV_EPEERLOST, "checkpoint: {}", why.text());
  // Before worker_finished(), which would begin the job of those that wait without the lost worker.
  for (const cluster::Member* other : view_->workers()) {
    if (!anyone_waits || !is_here(*other)) continue;
    auto& theirs = waiting_[other->peer];
    if (theirs.empty()) untold_[other->peer].push_back(status);
    for (const Request& request : std::exchange(theirs, {})) server_.fail(request.asked, status);
  }
  worker_finished(worker);
}

/// Begins the next job if all live workers have requested one.
void Coordinator::settle() {
  if (served_.served(0) != nullptr) end_what_has_ended();
  while (job_ == nullptr && served_.served(0) != nullptr && !served_.is_leaving()) {
    if (!resumes_.empty()) {
      const Request request = std::move(resumes_.front());
      resumes_.pop_front();
      if (!has_ended(request) && !joins(request)) resume(request);
      continue;
    }
    if (!alone_.empty()) {
      std::vector<Request> requests{std::move(alone_.front())};
      alone_.pop_front();
      begin(std::move(requests));
      continue;
    }
    const auto workers = view_->workers();
    const bool all = std::all_of(workers.begin(), workers.end(),
                                 [&](const auto* w) { return !is_here(*w) || !waiting_[w->peer].empty(); });
    std::vector<Request> requests;
    for (const cluster::Member* worker : workers) {
      const auto theirs = waiting_.find(worker->peer);
      if (!all || theirs == waiting_.end() || theirs->second.empty()) continue;
      requests.push_back(std::move(theirs->second.front()));
      theirs->second.pop_front();
    }
    if (requests.empty()) break;
    begin(std::move(requests));
  }
  const bool waits =
      std::any_of(waiting_.begin(), waiting_.end(), [](const auto& entry) { return !entry.second.empty(); });
  if (!waits) waits_since_ = base::kNever;
}

void Coordinator::begin(std::vector<Request> requests) {
  const Request& first = requests.front();
  const auto other = std::find_if(requests.begin(), requests.end(), [&](const Request& request) { return !request.same_as(first); });
  if (other != requests.end()) {
    const auto tell = [&](const Request& request) {
      return fmt::format("{} wants to {} {} (keep {})", view_->name(request.asked.client), request.loads ? "load" : "save to",
                         request.path, request.keep);
    };
    const base::Status disagree = base::error(MV_EDISAGREE, "checkpoint: the workers disagree: {}, {}", tell(first), tell(*other));
    for (const Request& request : requests) server_.fail(request.asked, disagree);
    return;
  }
  const auto job = job_ = std::make_shared<Job>();
  job->id = ++jobs_;
  job->loads = first.loads;
  job->asked_path = first.path;
  job->keep = first.keep;
  for (const Request& request : requests) {
    job->askers.push_back(request.asked);
    job->workers.push_back(request.asked.client);
    job->call = std::max(job->call, request.call);
    for (const auto& [name, clock] : request.clocks) {
      const auto [least, is_new] = job->clocks.emplace(name, clock);
      if (!is_new) least->second = std::min(least->second, clock);
    }
  }
  start_job();
}

void Coordinator::add_parts() {
  for (const cluster::Member* server : view_->servers()) {
    job_->parts.emplace_back();
    const base::Peer by = view_->serving(*server);
    job_->parts.back().server = by != base::kNobody ? by : server->peer;  // a request to the lost one fails with the reason
  }
}

void Coordinator::start_job() {
  job_->path = job_->asked_path;
  add_parts();
  set_phase(job_->loads ? Phase::kFinding : Phase::kPlace);
  if (job_->loads)
    storage_->find(job_->path, [this](base::Result<Storage::Found> found) { check(std::move(found)); });
  else
    storage_->begin(job_->path, [this](base::Result<checkpoint::CheckpointPath> place) { take_snapshots(std::move(place)); });
}

// ---- requests to servers

void Coordinator::set_phase(Phase phase) {
  job_->phase = phase;
  phase_since_ = clock_.now();
  if (next_notice_ == base::kNever) next_notice_ = phase_since_ + kNoticeAfter;
}

void Coordinator::ask(size_t server, const Question& question, Heard heard) {
  ServerPart& part = job_->parts[server];
  part.asked = true;
  const auto pending = std::make_shared<Answer>(
      [this, job = job_, server, question, heard](const base::Status& status, const wire::Message* answer) {
        if (job != job_) return;
        job->parts[server].asked = false;
        const auto ask_again = [this, server, question, heard] { ask(server, question, heard); };
        if (status.code() == MV_EPEERLOST && may_follow(server)) {
          if (job->phase != Phase::kWriting) return follow(server, ask_again);
          return follow(server, [this, server] {
            ask(server, snapshot_of(nullptr, true), [this](size_t from, const base::Status& resumed, const wire::Message*) {
              if (!resumed.ok()) heard_of_file(from, resumed, nullptr);
            });
          });
        }
        if (status.code() != kMoved) return heard(server, status, answer);
        // Nothing has been done yet in these phases. In later ones, the part counts as lost.
        if (job->phase != Phase::kSnapshots && job->phase != Phase::kChecking)
          return heard(server, base::error(MV_EPEERLOST, "{}", status.text()), answer);
        follow(server, ask_again);
      });
  client_.call(part.server, {question(builder_, static_cast<uint32_t>(server)), pending, true, 0, nullptr});
}

/// Asks the new servers of parts that have moved since the job began.
void Coordinator::follow_moved() {
  const auto servers = view_->servers();
  for (size_t number = 0; job_ != nullptr && number < job_->parts.size(); ++number) {
    ServerPart& part = job_->parts[number];
    const base::Peer by = view_->serving(*servers[number]);
    if (!part.ask_again || by == part.server) continue;  // the view with its new server is still to come
    part.server = by != base::kNobody ? by : servers[number]->peer;  // a request to the lost one fails with the reason
    std::exchange(part.ask_again, nullptr)();
  }
}

/// Sends a request to all servers, notes errors, and calls `next` when all servers have answered.
void Coordinator::ask_all(const Question& question, void (Coordinator::*next)()) {
  const size_t servers = job_->parts.size();  // the job may be over before this returns
  const auto open = std::make_shared<size_t>(servers);
  for (size_t server = 0; server < servers; ++server)
    ask(server, question, [this, open, next](size_t from, const base::Status& status, const wire::Message*) {
      if (!status.ok()) note_failure(from, status);
      if (--*open == 0) (this->*next)();
    });
}

/// Marks the part of a failed server as over. The first error becomes that of the job.
void Coordinator::note_failure(size_t server, const base::Status& status) {
  ServerPart& part = job_->parts[server];
  part.over = true;
  if (!job_->error.ok()) return;
  const bool named = status.code() == MV_EPEERLOST;  // the text already names the server
  job_->lost_server = named && served_.can_move();
  job_->error = named ? status : base::error(status.code(), "{}: {}", view_->name(part.server), status.text());
}

void Coordinator::fail_askers(const base::Status& why) {
  for (const rpc::Asked& asked : std::exchange(job_->askers, {})) server_.fail(asked, why);
}

std::vector<base::Peer> Coordinator::awaited_workers() const {
  std::vector<base::Peer> awaited;
  for (const cluster::Member* worker : view_->workers()) {
    const auto theirs = waiting_.find(worker->peer);
    if (is_here(*worker) && (theirs == waiting_.end() || theirs->second.empty())) awaited.push_back(worker->peer);
  }
  return awaited;
}

std::string Coordinator::missing_workers() const {
  const std::string names = view_->names(awaited_workers());
  return !names.empty()    ? names
         : job_ != nullptr ? fmt::format("checkpoint {}, which is not complete yet", job_->path)
                           : "nobody";
}

std::vector<base::Peer> Coordinator::awaited_servers() const {
  std::vector<base::Peer> awaited;
  for (const ServerPart& part : job_->parts)
    if (part.asked || (job_->phase == Phase::kWriting && !part.over) || client_.is_lost(part.server)) awaited.push_back(part.server);
  return awaited.empty() ? std::vector{job_->parts.front().server} : awaited;
}

std::vector<cluster::Wait> Coordinator::waits() const {
  std::vector<cluster::Wait> waits;
  if (view_ == nullptr) return waits;
  const base::Nanos now = clock_.now();
  const auto add = [&](base::Peer who, base::Nanos since, const std::vector<base::Peer>& awaited, const char* what) {
    waits.push_back({cluster::WaitKind::kCheckpoint, who, "", 0, now - since, now - since, {}});
    for (const base::Peer peer : awaited) waits.back().awaited.push_back({peer, what});
  };
  for (const auto& [worker, requests] : waiting_)
    for (const Request& request : requests) add(worker, request.since, awaited_workers(), "has not requested it");
  if (job_ == nullptr || job_->parts.empty()) return waits;
  for (const rpc::Asked& asked : job_->askers) add(asked.client, phase_since_, awaited_servers(), "has not done its part");
  return waits;
}

// ---- a save

void Coordinator::take_snapshots(base::Result<checkpoint::CheckpointPath> place) {
  if (!place.ok()) return save_over(place.status());
  job_->path = place.value().path;
  job_->number = place.value().number;
  job_->tables = served_.served(0)->entries(job_->clocks);
  const auto clocks = write_clocks(job_->clocks);
  if (!clocks.ok() && job_->error.ok()) job_->error = clocks.status();
  if (!job_->error.ok()) {  // given up in the meantime
    fail_askers(job_->error);
    set_phase(Phase::kWriting);
    return end_save();
  }
  set_phase(Phase::kSnapshots);
  ask_all(snapshot_of(clocks.value(), false), &Coordinator::snapshots_taken);
}

Coordinator::Question Coordinator::snapshot_of(base::PayloadRef clocks, bool resumes) const {
  return [id = job_->id, number = job_->number, path = job_->path, clocks = std::move(clocks), resumes](wire::FrameBuilder& builder, uint32_t part) {
    const auto snapshot = wire::CreateSnapshotDirect(builder.fbb(), id, number, path.c_str(), part, resumes);
    return builder.finish(wire::Body::Snapshot, snapshot, clocks);
  };
}

void Coordinator::snapshots_taken() {
  Job& job = *job_;
  const HeldSave* const held = job.resumes ? served_.held(0) : nullptr;
  if (held != nullptr && held->path == job.path) job.tables = held->entries;
  else if (job.resumes && job.error.ok()) job.error = base::error(MV_EPEERLOST, "checkpoint {}: the list of its tables was lost with a server", job.path);
  if (job.error.ok() || job.resumes) {  // workers of a resumed save have continued: they get the error when they ask
    tell_saving();
    if (job.error.ok()) base::log_info("checkpoint {}: all servers have their snapshots; training continues", job.path);
  } else if (!may_begin_again()) {
    fail_askers(job.error);
  }
  set_phase(Phase::kWriting);
  poll_wait_ = kFirstRepeat;
  poll();
}

/// The workers may continue, and ask whether the save has ended.
void Coordinator::tell_saving() {
  Job& job = *job_;
  Ending& ending = endings_[job.id];
  ending.path = job.path;
  ending.number = job.number;
  ending.call = job.call;
  ending.resumed = job.resumes;
  ending.untold.insert(job.workers.begin(), job.workers.end());
  for (const rpc::Asked& asked : job.askers) ending.untold.insert(asked.client);
  std::erase_if(ending.untold, [&](base::Peer worker) {
    const cluster::Member* member = view_->find(worker);
    return member == nullptr || !is_here(*member);
  });
  for (const rpc::Asked& asked : std::exchange(job.askers, {})) answer_saving(asked, job.id, ending);
}

void Coordinator::answer_saving(const rpc::Asked& asked, uint64_t save, const Ending& ending) {
  const auto saving = wire::CreateSavingDirect(builder_.fbb(), save, ending.path.c_str(), ending.call, ending.number);
  server_.answer(asked, builder_.finish(wire::Body::Saving, saving));
}

void Coordinator::poll() {
  next_poll_ = clock_.now() + poll_wait_;
  poll_wait_ = std::min(poll_wait_ * 2, kLongestRepeat);
  const auto job = job_;
  if (!job->is_taken_over) return;
  for (size_t server = 0; server < job->parts.size() && job_ == job; ++server) {
    ServerPart& part = job->parts[server];
    if (job->needs_no_file() && std::exchange(part.ask_again, nullptr)) part.over = true;
    if (part.over || part.asked || part.ask_again) continue;
    ask(
        server,
        [&](wire::FrameBuilder& builder, uint32_t number) {
          return builder.finish(wire::Body::Written, wire::CreateWritten(builder.fbb(), job->id, job->needs_no_file(), number));
        },
        [this](size_t from, const base::Status& status, const wire::Message* answer) { heard_of_file(from, status, answer); });
  }
  if (job_ == job) end_save_if_over();
}

void Coordinator::heard_of_file(size_t server, const base::Status& status, const wire::Message* answer) {
  ServerPart& part = job_->parts[server];
  const auto* file = answer != nullptr ? answer->body_as_SavedFile() : nullptr;
  if (job_->is_complete) {
    part.over = true;
  } else if (!status.ok()) {
    note_failure(server, status);
    poll_wait_ = kFirstRepeat;  // tell the other servers soon to stop
    next_poll_ = clock_.now();
  } else if (file != nullptr && file->name() != nullptr) {
    part.over = true;
    part.file = {file->name()->str(), file->bytes(), wire::text_of(file->checksum())};
  }
  end_save_if_over();
}

void Coordinator::end_save_if_over() {
  if (std::all_of(job_->parts.begin(), job_->parts.end(), [](const ServerPart& part) { return part.over; })) end_save();
}

void Coordinator::end_save() {
  if (job_->phase != Phase::kWriting) return;
  set_phase(Phase::kEnding);
  next_poll_ = base::kNever;
  if (job_->is_complete) return save_over({});
  if (!job_->error.ok() && !served_.why_cut_off().ok()) return save_over(job_->error);  // another process may continue it
  if (!job_->error.ok())
    return storage_->discard(job_->path, [this](const base::Status& failed) {
      if (!failed.ok())
        base::log_warn("checkpoint {}: its incomplete files could not be removed: {}", job_->path, failed.text());
      save_over(job_->error);
    });
  checkpoint::Manifest manifest;
  manifest.number = job_->number;
  manifest.tables = job_->tables;
  for (const ServerPart& part : job_->parts) manifest.files.push_back(part.file);
  storage_->complete(job_->path, std::move(manifest), job_->keep, [this](const base::Status& failed) {
    if (failed.ok()) return save_over({});
    job_->error = failed;
    storage_->discard(job_->path, [this](const base::Status&) { save_over(job_->error); });
  });
}

void Coordinator::save_over(const base::Status& status) {
  if (may_begin_again()) return await_servers();
  const auto job = job_;
  if (!status.ok()) {
    base::log_info("checkpoint {}: not saved: {}", job->path, status.text());  // the workers get the error
    fail_askers(status);
  } else {
    uint64_t bytes = 0;
    for (const ServerPart& part : job->parts) bytes += part.file.bytes;
    base::log_info("checkpoint {}: complete, {} tables in {} bytes", job->path, job->tables.size(), bytes);
  }
  if (const auto ending = endings_.find(job->id); ending != endings_.end()) {
    ending->second.over = true;
    ending->second.status = status;
    if (ending->second.untold.empty()) endings_.erase(ending);
  }
  job_.reset();
  settle();
}

void Coordinator::saved(const rpc::Asked& asked, const wire::Saved& request) {
  const auto found = endings_.find(request.save());
  if (found == endings_.end() || !found->second.untold.contains(asked.client))
    return server_.fail(asked, base::Status(MV_ENOTFOUND, "no such checkpoint is being saved"));
  Ending& ending = found->second;
  if (!request.gives_up() && !ending.over) return answer_saving(asked, request.save(), ending);
  ending.status.ok() || request.gives_up() ? server_.answer(asked, builder_.answer({})) : server_.fail(asked, ending.status);
  ending.untold.erase(asked.client);
  if (ending.over && ending.untold.empty()) endings_.erase(found);
}

// ---- a load

void Coordinator::check(base::Result<Storage::Found> found) {
  if (!found.ok()) {
    job_->error = found.status();
    return load_over();
  }
  job_->path = found.value().path;
  job_->tables = found.value().manifest.tables;
  for (const auto& table : job_->tables) job_->clocks.emplace(table.spec.name, table.clock);
  const auto clocks = write_clocks(job_->clocks);
  if (!clocks.ok()) {  // the clocks do not fit into the answer
    job_->error = base::error(clocks.status().code(), "{}; nothing was changed", clocks.status().text());
    return load_over();
  }
  job_->written_clocks = clocks.value();
  set_phase(Phase::kChecking);
  ask_all([job = job_](wire::FrameBuilder& builder,
                       uint32_t part) { return builder.finish(wire::Body::Check, wire::CreateCheckDirect(builder.fbb(), job->path.c_str(), part)); },
          &Coordinator::checked);
}

void Coordinator::checked() {
  if (!job_->error.ok()) {
    job_->error = base::error(job_->error.code(), "{}; nothing was changed", job_->error.text());
    return restore(true, &Coordinator::look_for_newer);
  }
  set_phase(Phase::kRestoring);
  restore(false, &Coordinator::restored);
}

/// Makes all servers move the parts that they have read into their tables, or drop them.
void Coordinator::restore(bool forget, void (Coordinator::*next)()) {
  ask_all(
      [job = job_, forget](wire::FrameBuilder& builder, uint32_t part) {
        return builder.finish(wire::Body::Restore, wire::CreateRestoreDirect(builder.fbb(), job->path.c_str(), forget, part));
      },
      next);
}

/// Another job may have saved a newer checkpoint in the directory, and removed this one while it was checked.
void Coordinator::look_for_newer() {
  const auto job = job_;
  if (job->error.code() != MV_EINVAL || job->path == job->asked_path) return load_over();
  storage_->find(job->asked_path, [this, job](const base::Result<Storage::Found>& found) {
    const bool is_newer = found.ok() && found.value().path != job->path;
    const bool all_wait = job->askers.size() == job->workers.size();
    if (!is_newer || !all_wait) return load_over();
    base::log_info("checkpoint {}: {}; loading {} instead", job->path, job->error.text(), found.value().path);
    begin_again();
  });
}

void Coordinator::restored() {
  if (!job_->error.ok())
    job_->error = base::error(job_->error.code(), "{}; the tables are only partly restored; load a checkpoint again",
                              job_->error.text());
  load_over();
}

void Coordinator::load_over() {
  if (may_begin_again()) return await_servers();
  const auto job = job_;
  if (!job->error.ok()) {
    fail_askers(job->error);
  } else {
    base::log_info("checkpoint {}: loaded, {} tables", job->path, job->tables.size());
    for (const rpc::Asked& asked : std::exchange(job->askers, {}))
      server_.answer(asked, builder_.finish(wire::Body::Loaded, wire::CreateLoaded(builder_.fbb(), job->call), job->written_clocks));
  }
  job_.reset();
  settle();
}

// ---- time

base::Nanos Coordinator::next_deadline() const { return std::min(next_poll_, next_notice_); }

void Coordinator::tick() {
  const base::Nanos now = clock_.now();
  if (now >= next_poll_) job_ != nullptr && job_->phase == Phase::kWriting ? poll() : void(next_poll_ = base::kNever);
  if (now < next_notice_) return;
  const bool long_wait = job_ == nullptr && waits_since_ != base::kNever && now - waits_since_ >= kNoticeAfter;
  if (long_wait) base::log_warn("a checkpoint waits for {}", missing_workers());
  if (job_ != nullptr && now - phase_since_ >= kNoticeAfter)
    base::log_info("checkpoint {}: waiting for {}", job_->path, missing_servers());
  next_notice_ = job_ != nullptr || waits_since_ != base::kNever ? now + kNoticeAfter : base::kNever;
}

}  // namespace mv::checkpoint
