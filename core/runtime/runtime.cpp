// Runtime: starting, joining and leaving.

#include "runtime/runtime.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/log.hpp"
#include "engine/collective/cost_text.hpp"
#include "runtime/addresses.hpp"
#include "runtime/exits.hpp"
#include "runtime/random.hpp"
#include "runtime/tuning_files.hpp"
#include "transport/fabric/fabric_transport.hpp"
#include "transport/fabric/job_transport.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/socket.hpp"

namespace mv::runtime {

namespace {

/// How much longer than the engines' own timeout a starting node waits for their result.
constexpr base::Nanos kVerdict = std::chrono::seconds(10);
constexpr base::Nanos kProbeAfter = std::chrono::milliseconds(200);
constexpr base::Nanos kNoticeAfter = std::chrono::seconds(10);
/// The interval between two checks of the launcher's reports, while other processes are awaited.
constexpr base::Nanos kLookAgain = std::chrono::milliseconds(50);
/// How long an abort waits for peers that do not read its message.
constexpr base::Nanos kToldWithin = std::chrono::seconds(1);

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

/// Whether the descriptor is the socket that the launcher has bound for the master. In a later init() of this process, another file may have its number.
bool is_masters_socket(int fd, const std::string& master) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return false;
  const auto parsed = transport::parse_address(master.substr(0, master.find(',')));
  return !parsed.ok() || transport::host_port(transport::local_endpoint(fd)).port == parsed.value().port;
}

/// The costs that were measured here; where there are none, or they can't be read, the defaults.
collective::Costs measured_costs(const Settings& settings) {
  const auto kept = collective::read_costs(settings.tuning == "auto" ? kept_costs() : std::string());
  return kept.ok() ? kept.value() : collective::Costs();
}

/// The costs by which groups choose, if this node is their lowest rank.
base::Result<collective::Basis> basis_of(const Settings& settings) {
  auto costs = collective::read_costs(settings.collective_costs, measured_costs(settings));
  if (!costs.ok()) return costs.status();
  const base::TransportKind beside = settings.transport == "tcp"      ? base::TransportKind::kTcp
                                : settings.transport == "ucx"    ? base::TransportKind::kUcx
                                : settings.transport == "mpi"    ? base::TransportKind::kMpi
                                : settings.transport == "inproc" ? base::TransportKind::kInproc
                                                          : base::TransportKind::kShm;
  return collective::Basis{costs.value(), beside};
}

/// The description of this node for the cluster. The address follows once it listens.
cluster::Self self_of(const Settings& settings) {
  cluster::Self self;
  self.peer = random_peer();
  self.rank = settings.rank;
  self.role = settings.role;
  self.nodes = static_cast<uint32_t>(settings.nodes);
  self.sync = settings.sync;
  self.replicas = static_cast<uint32_t>(settings.replicas);
  self.max_servers = static_cast<uint32_t>(settings.max_servers);
  self.max_workers = static_cast<uint32_t>(settings.max_workers);
  self.sync_said = settings.sync_said;
  self.is_master = settings.nodes == 1 || settings.rank == 0;
  self.master = settings.master;
  self.host = host_name();
  self.pid = static_cast<uint32_t>(getpid());
  self.init_timeout = settings.init_timeout;
  self.heartbeat_timeout = settings.heartbeat_timeout;
  self.stuck_after = settings.stuck_after;
  return self;
}

}  // namespace

Runtime::Runtime(const Settings& settings, Events events) : settings_(settings), events_(std::move(events)), trace_(settings.events_kept()) {}

base::Status Runtime::join() {
  if (!has_met_) {
    if (settings_.listen_fd >= 0 && !is_masters_socket(settings_.listen_fd, settings_.master)) settings_.listen_fd = -1;
    // Before meet(): all processes of the job come here first, and some wait there for others.
    if (const base::Status status = settings_.transport != "mpi" ? make_teams() : base::Status(); !status.ok()) return status;
    if (const base::Status status = meet(); !status.ok()) return status;
  }
  has_met_ = true;
  if (!loop_runs_) {
    if (const base::Status status = enter_job(); !status.ok()) return status;
    if (const base::Status status = settings_.transport == "mpi" ? make_teams() : base::Status(); !status.ok()) return status;
    if (const base::Status status = set_up(); !status.ok()) return status;
  }
  return wait_until_ready();
}

/// With transport=mpi: the job is the cluster. To be called before anything depends on this process's place in it.
base::Status Runtime::enter_job() {
  const bool alone = settings_.nodes_said && settings_.nodes == 1;
  if (settings_.transport != "mpi" || alone || job_) return {};
  auto job = open_mpi(settings_);
  if (!job.ok()) return job.status();
  const mv_fabric_about& about = job.value().fabric->about();
  settings_.nodes = about.size;
  settings_.rank = about.size > 1 ? about.rank : settings_.rank;
  settings_.master = about.size > 1 ? transport::JobTransport::address_of(0) : "";
  if (about.size > 1) job_ = std::move(job).value();
  return {};
}

base::Status Runtime::set_up() {
  cluster::Self self = self_of(settings_);
  self.asks_keeper = by_keeper_ != nullptr && !meets_at_master_;
  const auto basis = basis_of(settings_);
  if (!basis.ok()) return basis.status();
  if (const base::Status status = serve_metrics(); !status.ok()) return status;
  if (const base::Status status = make_transports(self); !status.ok()) return status;

  rpc::ClientOptions options;
  if (router_->lossy()) options.probe_after = kProbeAfter;
  engine::Member::Events events;
  events.on_ready = [this](const cluster::View& view) {
    take_identity(view);
    publication_.reset();
    learn_ranks();
    if (events_.joined) events_.joined();
    ready_ = true;
  };
  events.on_failed = [this](const base::Status& why) {
    failure_ = why;
    failed_ = true;
  };
  events.on_change = [this] {
    workers_gone_ = member_->cluster().all_workers_gone();
    learn_ranks();
    take_name();
    tell_launcher();
  };
  events.on_drain = [this] {
    member_->drain().begin([this](const base::Status& status) { drained_ = drained_ || status.ok(); });
  };
  events.on_event = [this](const cluster::MembershipEvent& event) {
    ++changes_[static_cast<size_t>(event.change)];
    if (events_.membership) events_.membership(event);
  };
  member_ = std::make_unique<engine::Member>(loop_, *router_, std::move(self), options, std::move(events), shares_tables(), &storage_);
  member_->groups().choose_by(basis.value());
  if (settings_.replicas > 0) {
    auto views = keeper::make_keeper(settings_.keeper, settings_.keeper_auth, settings_.heartbeat_timeout, loop_);
    if (!views.ok()) return views.status();
    view_keeper_ = std::move(views).value();
    if (view_keeper_ != nullptr) member_->cluster().use_keeper(*view_keeper_);
  }
  if (http_ != nullptr) member_->status().set_metrics(http_->address());
  const std::string library = teams_ != nullptr ? fmt::format("; collective={}: all-reduces also by {}", settings_.collective, teams_->about().version) : "";
  member_->status().set_transports(router_->choice() + library);
  if (by_keeper_ != nullptr) member_->status().set_keeper([this] { return by_keeper_->state(); });
  member_->status().set_paths([this](base::Peer peer) { return path_to_peer(peer); });
  if (watched_) member_->take_times(trace_);
  if (watched_) loop_.keep_time();
  loop_.add_flusher(*this);  // before the transports: what it sends leaves in the same iteration of the loop
  router_->attach(*member_);
  share_memory();
  loop_.on_breakdown([this](const base::Status& why) { tell_breakdown(why); });
  loop_.set_spin(std::chrono::microseconds(settings_.spin_us));
  if (const base::Status status = loop_.start(); !status.ok()) return status;
  loop_runs_ = true;
  loop_.post([this] { member_->start(); });
  return {};
}

/// A master that takes the place of a lost one is found by the cluster's name, too.
void Runtime::take_name() {
  if (by_keeper_ == nullptr || settings_.rank == 0 || !member_->cluster().is_master() || std::exchange(has_name_, true)) return;
  std::vector<std::string> members;
  for (const cluster::Member& member : member_->cluster().view().members) members.push_back(member.address);
  by_keeper_->succeed(member_->cluster().self().address, std::move(members));
}

/// The keeper knows a new master before this process has joined.
void Runtime::follow_keeper() {
  if (const auto address = by_keeper_->moved()) on_loop([&] { member_->cluster().ask_at(*address); });
}

/// The memory of other processes of this machine, by the shared-memory transport.
class Runtime::HostMemory final : public replica::HostMemory {
 public:
  explicit HostMemory(transport::ShmTransport& transport) : transport_(transport) {}
  void ask(base::Peer peer, uint64_t number, Given given) override { transport_.ask(peer, number, std::move(given)); }

 private:
  transport::ShmTransport& transport_;
};

/// Lets other processes read this server's tables in place, and reports servers whose memory is gone.
void Runtime::share_memory() {
  if (!shares_tables()) return;
  if (router_->shm() != nullptr) {
    host_memory_ = std::make_unique<HostMemory>(*router_->shm());
    member_->parts().use(*host_memory_);
  }
  const auto give = [this](base::Peer peer, uint64_t number) -> std::shared_ptr<base::SharedMemory> {
    if (!member_->admits(peer)) return nullptr;
    if (number > UINT32_MAX) return member_->parts().memory_for(peer, number);
    const auto shard = member_->shards().shard(static_cast<uint32_t>(number));
    return shard != nullptr && !shard->destroyed ? shard->shared() : nullptr;
  };
  if (router_->shm() != nullptr) router_->shm()->serve(give);
  if (router_->fabric() != nullptr) router_->fabric()->serve(give);
  router_->set_on_memory_lost([this](base::Peer peer) {
    if (events_.lost_shared_memory) events_.lost_shared_memory(peer);
  });
}

/// All processes of the job come here.
base::Status Runtime::make_teams() {
  if (teams_ != nullptr || !wants_teams(settings_)) return {};
  if (!loop_.ready().ok()) return loop_.ready();
  auto fabric = open_mpi_for_teams(settings_);
  if (!fabric.ok()) return fabric.status();
  auto teams = transport::Teams::make(loop_, std::move(fabric).value());
  if (!teams.ok()) return teams.status();
  teams_ = std::move(teams).value();
  return {};
}

base::Status Runtime::make_transports(cluster::Self& self) {
  auto router = Router::make(loop_, settings_, self.peer, trace_, Router::Fencing::kLost, std::exchange(job_, std::nullopt));
  if (!router.ok()) return router.status();
  router_ = std::move(router).value();
  if (settings_.nodes > 1) return listen(self);
  if (settings_.listen_fd < 0 || settings_.transport == "inproc") return {};
  const auto observable = adopt_sockets();
  return observable.ok() ? base::Status() : observable.status();
}

/// Gets from rank 0 what the launcher has not provided: its address and a secret.
base::Status Runtime::meet() {
  if (settings_.transport == "mpi") return {};
  if (settings_.is_named() || by_keeper_ != nullptr) return meet_by_keeper();
  if (settings_.rendezvous.empty() || settings_.nodes == 1) return {};
  if (settings_.rank == 0) {
    if (settings_.secret.empty()) settings_.secret = random_secret();
    return {};
  }
  auto meeting = ask_rank_0(settings_.rendezvous, settings_.init_timeout, begun_);
  if (!meeting.ok()) return meeting.status();
  settings_.master = meeting.value().address;
  if (settings_.secret.empty()) settings_.secret = meeting.value().secret;
  return {};
}

/// Gets from the keeper whether this process is rank 0, and if not, rank 0's address. With a master, only publishes rank 0's address.
base::Status Runtime::meet_by_keeper() {
  if (by_keeper_ == nullptr) {
    // Several addresses are those of members of a cluster that may run already.
    const std::string master = settings_.master.substr(0, settings_.master.find(','));
    const int64_t rank = settings_.rank < 0 && (settings_.joins_only || master != settings_.master) ? 1 : settings_.rank;
    auto begun = keeper::Rendezvous::begin(
        {settings_.keeper, settings_.keeper_auth, rank, settings_.bind, settings_.advertise, settings_.init_timeout, settings_.heartbeat_timeout,
         master, settings_.listen_fd, settings_.replicas > 0 && settings_.role != MV_ROLE_WORKER});
    if (!begun.ok()) return begun.status();
    by_keeper_ = std::move(begun).value();
    meets_at_master_ = !master.empty();
  }
  auto place = by_keeper_->wait();
  if (!place.ok()) return place.status();
  if (settings_.master.empty()) settings_.master = place.value().master;
  settings_.joins_only = !place.value().is_master;
  if (!place.value().is_master) return {};
  settings_.rank = 0;
  published_ = place.value().published;
  if (settings_.listen_fd >= 0)
    published_fd_ = std::move(place.value().listening);
  else
    settings_.listen_fd = place.value().listening.release();
  return {};
}

/// Rank 0 listens at the master's address. A process without a rank becomes rank 0 if that address is free.
base::Status Runtime::listen(cluster::Self& self) {
  if (settings_.transport == "inproc") return listen_inproc(self);
  if (settings_.transport == "mpi") return listen_in_job(self);
  base::Result<std::string> address = base::Status(MV_ENOSYS, "");
  if (self.rank == 0 && settings_.listen_fd >= 0) address = adopt_sockets();
  // Several addresses are those of members of a cluster that may run already.
  const std::string first = self.master.substr(0, self.master.find(','));
  const bool joins_only = settings_.joins_only || (self.rank < 0 && first != self.master);
  if (!address.ok() && self.rank <= 0 && !joins_only) {
    address = listen_at(first.empty() ? settings_.bind : first);
    if (!address.ok() && self.rank == 0) return address.status();
    if (address.ok()) self.rank = 0;
  }
  self.is_master = self.rank == 0;
  if (!self.is_master) address = listen_at(settings_.bind);
  if (!address.ok()) return address.status();
  if (self.is_master && !published_.empty()) {
    self.address = published_;
  } else {
    auto told = advertised_address(settings_.advertise, address.value(), towards(first.empty() ? address.value() : first));
    if (!told.ok()) return told.status();
    self.address = std::move(told).value();
  }
  router_->introduce_as(self.address);
  if (!self.is_master || !self.master.empty()) return {};
  self.master = self.address;
  auto published = Publication::make(loop_, settings_.rendezvous, {self.address, settings_.secret});
  if (!published.ok()) return published.status();
  publication_ = std::move(published).value();
  return {};
}

/// The sockets on which rank 0 listens already. Returns the address that reaches furthest.
base::Result<std::string> Runtime::adopt_sockets() {
  auto address = router_->adopt(settings_.listen_fd);
  return address.ok() && published_fd_ ? router_->adopt(published_fd_.release()) : address;
}

/// The master's address, by which a process that listens on all interfaces sees which one others reach. Not where it is one of loopback, as
/// under `polyverso run`, and the cluster has a name: then members may be on other machines.
std::string Runtime::towards(const std::string& master) const {
  const auto parsed = transport::parse_address(master);
  return meets_at_master_ && parsed.ok() && transport::is_loopback_text(parsed.value().host) ? "" : master;
}

base::Result<std::string> Runtime::listen_at(const std::string& wished) {
  const auto address = listening_address(wished);
  return address.ok() ? router_->listen(address.value()) : address;
}

base::Status Runtime::listen_in_job(cluster::Self& self) {
  const auto address = router_->listen(transport::JobTransport::address_of(self.rank));
  if (!address.ok()) return address.status();
  self.address = address.value();
  self.is_master = self.rank == 0;
  return {};
}

base::Status Runtime::listen_inproc(cluster::Self& self) {
  if (!self.master.starts_with("inproc:")) self.master = "inproc:" + self.master;
  base::Result<std::string> address = base::Status(MV_ENOSYS, "");
  if (self.rank <= 0) {
    address = router_->listen(self.master);
    if (!address.ok() && self.rank == 0) return address.status();
    if (address.ok()) self.rank = 0;
  }
  self.is_master = self.rank == 0;
  if (!self.is_master) address = router_->listen(fmt::format("inproc:{:016x}", self.peer));
  if (!address.ok()) return address.status();
  self.address = address.value();
  return {};
}

base::Status Runtime::wait_until_ready() {
  const base::Nanos waited = std::chrono::steady_clock::now() - begun_;
  const base::Nanos limit = base::after(loop_.now() - waited, base::after(settings_.init_timeout, kVerdict));
  const auto decided = [this] { return ready_.load() || failed_.load(); };
  transport::Driven driven;
  for (int looks = 0;;) {
    const bool looks_again = !settings_.exits.empty() || by_keeper_ != nullptr;
    driven = loop_.drive_until(decided, looks_again ? std::min(limit, loop_.now() + kLookAgain) : limit);
    if (driven != transport::Driven::kTimeout || loop_.now() >= limit) break;
    if (by_keeper_ != nullptr) follow_keeper();
    // The second check counts: a process that leaves a complete cluster has notified the others before it ended.
    if (first_exit(settings_.exits) && ++looks > 1 && is_joining()) return never_joined();
  }
  if (driven != transport::Driven::kInterrupted && by_keeper_ != nullptr) by_keeper_->settle();
  if (driven == transport::Driven::kInterrupted)
    return base::Status(MV_EINTR, "a signal interrupted the wait for the other processes; joining continues: call again");
  if (driven == transport::Driven::kBroken) return ended();
  if (driven != transport::Driven::kDone) return base::Status(MV_ETIMEOUT, "the other processes did not join in time");
  if (!failed_) return {};
  const bool consequence = failure_.code() == MV_EPEERLOST && first_exit(settings_.exits) && is_joining();  // the master gave up first
  return consequence ? never_joined() : failure_;
}

base::Status Runtime::never_joined() const {
  return base::error(MV_EPEERLOST, "{} before it joined", first_exit(settings_.exits).value_or("a process exited"));
}

bool Runtime::is_joining() {
  bool joining = false;
  on_loop([&] { joining = member_->cluster().is_joining(); });
  return joining;
}

void Runtime::take_identity(const cluster::View& view) {
  const base::Peer self = member_->self();
  identity_.rank = view.find(self)->rank;
  identity_.worker_id = view.worker_id(self);
  const auto taken = view.taken_places();
  identity_.size = static_cast<int64_t>(taken.size());
  identity_.num_workers = std::ranges::count_if(taken, &cluster::Member::is_worker);
  identity_.num_worker_places = static_cast<int64_t>(view.workers().size());
  identity_.server_id = view.server_id(self);
  identity_.num_servers = std::ranges::count_if(taken, &cluster::Member::is_server);
  identity_.num_parts = static_cast<int64_t>(view.servers().size());
  identity_.sync = view.sync;
  identity_.is_late = member_->cluster().came_late();
  identity_.address = view.find(self)->address;
  base::log_info("rank {} of {}: worker {} of {}, server {} of {}, {} mode", identity_.rank, identity_.size, identity_.worker_id,
                 identity_.num_workers, identity_.server_id, identity_.num_servers, identity_.sync ? "sync" : "async");
}

void Runtime::flush() { member_->flush(); }
void Runtime::prepare_poll() { rearm(); }

/// A deadline that has moved into the future leaves the timer as it is. It then finds nothing due, which takes less time
/// than to set it for each call.
void Runtime::rearm() {
  const base::Nanos next = member_->next_deadline();
  if (next >= armed_) return;
  armed_ = next;
  loop_.set_timer(next, [this] {
    armed_ = base::kNever;
    member_->tick();
    rearm();
  });
}

/// Any thread; the engines and transports may be halfway through anything. Ends every connection,
/// and no peer can reconnect.
void Runtime::tell_breakdown(const base::Status& why) noexcept {
  if (events_.broken) events_.broken(why);
  loop_.shut_down_sockets();
  std::lock_guard lock(when_broken_mutex_);
  for (const auto& [weak, tell] : when_broken_)
    if (const auto alive = weak.lock()) tell(why);
}

void Runtime::when_broken(std::weak_ptr<const void> alive, std::function<void(const base::Status&)> tell) {
  std::lock_guard lock(when_broken_mutex_);
  std::erase_if(when_broken_, [](const auto& entry) { return entry.first.expired(); });
  when_broken_.emplace_back(std::move(alive), std::move(tell));
}

base::Status Runtime::shutdown() {
  if (loop_.defect() != nullptr) {
    const base::Status why = *loop_.defect();
    stop_transports();
    return why;
  }
  loop_.post([this] { finish_worker(); });
  const auto left = [this] { return left_.load(); };
  transport::Driven leaving = loop_.drive_until(left, base::after(loop_.now(), settings_.gate_timeout));
  if (leaving == transport::Driven::kTimeout)
    leaving = loop_.drive_until(left, base::kNever, [this] {
      member_->leave_without_flush();
      note_left(base::Status(MV_ETIMEOUT, "shutdown: not all of this worker's adds were acknowledged in time"));
    });
  if (leaving == transport::Driven::kInterrupted)
    return base::Status(MV_EINTR, "a signal interrupted the shutdown; the node is still serving: call mv_shutdown() again");
  bool serves = identity_.server_id >= 0;
  if (!serves) on_loop([&] { serves = member_->cluster().is_master(); });  // rank 0, or a process that has taken its place
  if (loop_.defect() != nullptr) return shutdown();

  const auto gone = [this] { return workers_gone_.load() || drained_.load(); };
  if (serves && identity_.size > 1) {
    transport::Driven driven = loop_.drive_until(gone, loop_.now() + kNoticeAfter);
    if (driven == transport::Driven::kTimeout) {
      base::log_info("rank {} has finished and keeps serving until the other workers finish", identity_.rank);
      driven = loop_.drive_until(gone, base::kNever);
    }
    if (driven == transport::Driven::kBroken) return shutdown();
    if (driven == transport::Driven::kInterrupted)
      return base::Status(MV_EINTR, "a signal interrupted the shutdown while this process serves others: call mv_shutdown() again");
  }
  base::Status lost;  // a worker has done its part
  if (identity_.worker_id < 0) on_loop([&] { lost = member_->cluster().why_left_alone(); });
  stop_transports();
  return left_with_.ok() ? lost : left_with_;
}

void Runtime::abort(const std::string& why) {
  const auto told = std::make_shared<std::atomic<bool>>(false);
  if (loop_.defect() == nullptr && loop_runs_) {
    loop_.post([this, why, told] { member_->abort(why, [told] { *told = true; }); });
    const base::Nanos limit = base::after(loop_.now(), kToldWithin);
    while (loop_.drive_until([&told] { return told->load(); }, limit) == transport::Driven::kInterrupted) {
    }
  }
  stop_transports();
}

/// Ends this process's part as a worker, unless that has begun. Loop thread only.
void Runtime::finish_worker() {
  if (std::exchange(leaving_, true)) return;
  if (identity_.worker_id < 0) return note_left({});
  member_->leave([this](const base::Status& status) { note_left(status); });
}

/// The first outcome counts. Loop thread only.
void Runtime::note_left(const base::Status& status) {
  if (left_) return;
  left_with_ = status;
  left_ = true;
  for (const auto& call : std::exchange(when_left_, {})) call();
}

void Runtime::stop_transports() {
  if (http_ != nullptr) http_->stop();  // its answers use the loop
  storage_.stop();
  if (!std::exchange(loop_runs_, false)) return by_keeper_.reset();
  std::atomic<bool> stopped{false};
  loop_.post([&] {
    publication_.reset();
    router_->stop([&] { stopped = true; });
  });
  while (loop_.drive_until([&] { return stopped.load(); }, base::kNever) == transport::Driven::kInterrupted) {
  }
  loop_.stop();
  by_keeper_.reset();  // gives the name back
}

void Runtime::end() {
  stop_transports();
  loop_.stop();
  loop_.remove_flusher(*this);
  member_.reset();
  view_keeper_.reset();
  teams_.reset();
  router_.reset();
}

Runtime::~Runtime() { end(); }

void Runtime::abandon_after_fork() noexcept {
  loop_.abandon_after_fork();
  if (by_keeper_ != nullptr) by_keeper_->abandon_after_fork();
  if (http_ != nullptr) http_->abandon_after_fork();
}

// ---- callers' threads on the loop

/// Exceptions of `read` go to the caller, because nothing has changed.
void Runtime::read_on_loop(const std::function<void()>& read) {
  bool failed = false;
  on_loop([&] {
    try {
      read();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) throw std::bad_alloc();
}

void Runtime::on_loop(const std::function<void()>& work) {
  std::atomic<bool> done{false};
  transport::Task task = [&] {
    work();
    done.store(true, std::memory_order_release);
  };
  const auto is_done = [&] { return done.load(std::memory_order_acquire); };
  transport::Driven driven = loop_.drive_until(is_done, base::kNever, std::move(task));
  while (driven == transport::Driven::kInterrupted) driven = loop_.drive_until(is_done, base::kNever);
}

/// Asks the loop, which is informed first: its drivers return before the node is notified.
base::Status Runtime::ended() const {
  const base::Status* const why = loop_.defect();
  return why != nullptr ? *why : base::Status(MV_ESTATE, "the node is shutting down");
}

void Runtime::no_way_back(const std::function<void()>& work) {
  if (!work) return;
  try {
    work();
  } catch (const std::exception& thrown) {
    loop_.break_down(&thrown);
    throw;
  }
}

}  // namespace mv::runtime
