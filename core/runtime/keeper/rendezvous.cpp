#include "runtime/keeper/rendezvous.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "runtime/addresses.hpp"
#include "runtime/keeper/etcd.hpp"
#include "runtime/keeper/quiet_thread.hpp"
#include "runtime/random.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/socket.hpp"

namespace mv::runtime::keeper {

namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

/// For one question, while there is time for others.
constexpr base::Nanos kPerQuestion = 2s;
/// How long a process may take to accept a connection.
constexpr base::Nanos kToAnswer = 2s;
constexpr base::Nanos kAskAgain = 200ms;
/// How long the name is waited for while its process lives, beyond a lease: it may be about to end.
constexpr base::Nanos kForTheEnd = 2s;
constexpr base::Nanos kToRelease = 500ms;

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name != '\0' ? name : "?";
}

SteadyClock::time_point sooner(SteadyClock::time_point deadline, base::Nanos span) {
  return std::min(deadline, SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(span));
}

/// Time-outs may be none at all.
std::string in_words(base::Nanos patience) {
  return patience > 24h ? "any time" : fmt::format("{:.3g} s", base::seconds(patience));
}

/// Whether something listens at the address.
base::Status answers(const std::string& address) {
  const auto parsed = transport::parse_address(address);
  if (!parsed.ok()) return parsed.status();
  const auto endpoints = transport::resolve(parsed.value(), /*numeric_only=*/false, /*to_listen=*/false);
  if (!endpoints.ok()) return endpoints.status();
  std::string why = "it has no address";
  for (const transport::Endpoint& endpoint : endpoints.value()) {
    int failure = 0;
    const transport::Fd fd = transport::start_connect(endpoint, &failure);
    pollfd writable{fd.get(), POLLOUT, 0};
    if (failure == 0) failure = poll(&writable, 1, static_cast<int>(kToAnswer / 1ms)) > 0 ? transport::connect_result(fd.get()) : ETIMEDOUT;
    if (failure == 0) return {};
    why = std::strerror(failure);
  }
  return base::error(MV_EUNREACHABLE, "{}: {}", address, why);
}

/// A loopback address of another machine.
base::Status misleads(const Entry& entry) {
  const auto parsed = transport::parse_address(entry.address);
  if (!parsed.ok() || entry.host == host_name() || !transport::is_loopback_text(parsed.value().host)) return {};
  return base::error(
      MV_EINVAL,
      "rank 0 runs on {}, and has published {}, which reaches only that machine itself: set bind (POLYVERSO_BIND) there to its address or interface",
      entry.host, entry.address);
}

/// Whether only this machine reaches what listens for the setting `bind`. An error counts as no: listening there reports it.
bool stays_on_loopback(const std::string& bind) {
  const auto wished = runtime::listening_address(bind);
  const auto parsed = wished.ok() ? transport::parse_address(wished.value()) : base::Result<transport::HostPort>(wished.status());
  return parsed.ok() && (parsed.value().host == "localhost" || transport::is_loopback_text(parsed.value().host));
}

}  // namespace

Rendezvous::Rendezvous(Arrival arrival, Address address)
    : arrival_(std::move(arrival)), address_(std::move(address)), registry_(make_registry(address_, arrival_.auth, arrival_.heartbeat)) {}

base::Result<std::unique_ptr<Rendezvous>> Rendezvous::begin(Arrival arrival) {
  auto address = parse_address(arrival.keeper);
  if (!address.ok()) return address.status();
  std::unique_ptr<Rendezvous> made(new Rendezvous(std::move(arrival), std::move(address).value()));
  made->set_state("not asked yet");
  made->met_ = transport::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->met_) return base::error(MV_ESYSTEM, "keeper: eventfd: {}", std::strerror(errno));
  auto thread = start_quiet_thread([each = made.get()] { each->run(); });
  if (!thread.ok()) return thread.status();
  made->thread_ = std::move(thread).value();
  return made;
}

Rendezvous::~Rendezvous() {
  {
    const std::lock_guard lock(idle_mutex_);
    stopping_ = true;
    idle_.notify_all();
  }
  registry_->cancel();
  if (thread_.joinable()) thread_.join();
}

void Rendezvous::abandon_after_fork() noexcept {
  registry_->abandon_after_fork();
  met_.reset();
}

base::Result<Place> Rendezvous::wait() {
  pollfd readable{met_.get(), POLLIN, 0};
  if (poll(&readable, 1, -1) < 0) return base::Status(MV_EINTR, "a signal interrupted the wait for rank 0: call again");
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(met_.get(), &count, sizeof count);
  return std::move(*result_);
}

std::optional<std::string> Rendezvous::moved() {
  const std::lock_guard lock(idle_mutex_);
  return std::exchange(moved_, std::nullopt);
}

void Rendezvous::settle() {
  const std::lock_guard lock(idle_mutex_);
  settled_ = true;
  idle_.notify_all();
}

void Rendezvous::succeed(const std::string& address, std::vector<std::string> members) {
  const std::lock_guard lock(idle_mutex_);
  succeeding_ = Entry{address, host_name(), static_cast<uint32_t>(getpid()), runtime::random_secret().substr(0, 32)};
  members_ = std::move(members);
  settled_ = true;
  idle_.notify_all();
}

/// False if the object is being destroyed.
bool Rendezvous::pause(base::Nanos span) {
  std::unique_lock lock(idle_mutex_);
  idle_.wait_for(lock, span, [this] { return stopping(); });
  return !stopping();
}

void Rendezvous::take_over() {
  bool warned = false;
  do {
    const auto taken =
        registry_->take_over(*succeeding_, members_, SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(kPerQuestion));
    if (taken.ok() && !taken.value()) {
      base::log_info("keeper: {} has this process as the master of \"{}\" now, at {}", address_.where(), address_.name, succeeding_->address);
      kept_for_ = "the master";
      set_state(fmt::format("this process is {}, kept by {}", kept_for_, registry_->kept_by()));
      return keep();
    }
    if (taken.status().code() != MV_ECANCELED && !std::exchange(warned, true))
      base::log_warn("keeper: new processes do not find this master yet: {}",
                     taken.ok() ? fmt::format("pid {} on {} has the name", taken.value()->pid, taken.value()->host) : taken.status().text());
  } while (pause(kAskAgain));
}

/// A process that waits for its place learns from the keeper where the others meet when rank 0 hangs, or ends.
void Rendezvous::watch(std::string known) {
  while (!stopping() && !settled_) {
    const auto found = registry_->look(SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(kPerQuestion));
    if (found.ok() && found.value() && found.value()->address != known && misleads(*found.value()).ok()) {
      known = found.value()->address;
      set_state(fmt::format("rank 0 was found, pid {} on {}", found.value()->pid, found.value()->host));
      const std::lock_guard lock(idle_mutex_);
      moved_ = known;
    }
    // Only members keep the place of a rank 0 that has died: those that wait give it free, for the next one.
    if (found.ok()) registry_->attend(arrival_.may_succeed && found.value().has_value());
    if (!found.ok() || !registry_->wait(SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(kPerQuestion)).ok()) pause(kAskAgain);
  }
}

std::string Rendezvous::state() const {
  const std::lock_guard lock(state_mutex_);
  return fmt::format("{}, cluster \"{}\": {}", address_.where(), address_.name, state_);
}

void Rendezvous::set_state(std::string state) {
  const std::lock_guard lock(state_mutex_);
  state_ = std::move(state);
}

void Rendezvous::run() {
  base::Result<Place> place = meet(
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(std::min<base::Nanos>(arrival_.patience, std::chrono::hours(24 * 365))));
  const bool keeps = place.ok() && place.value().is_master;
  const bool attends = place.ok() && arrival_.may_succeed;
  const std::optional<std::string> known = place.ok() && arrival_.master.empty() ? std::optional(place.value().master) : std::nullopt;
  result_ = std::move(place);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(met_.get(), &one, sizeof one);
  if (keeps) return keep();
  registry_->release(SteadyClock::now() + kToRelease);  // what it has taken to compete
  registry_->attend(attends);
  if (known) watch(*known);
  if (attends) registry_->attend(true);
  {  // without back-ups, too: a master that drains gives its role to another server
    std::unique_lock lock(idle_mutex_);
    idle_.wait(lock, [this] { return stopping() || succeeding_; });
  }
  if (!stopping()) take_over();
}

base::Result<Place> Rendezvous::meet(Deadline deadline) {
  if (!arrival_.master.empty()) return announce(deadline);
  if (arrival_.rank > 0) return wait_for_rank_0(deadline);
  auto listening = listen(arrival_.bind);
  return listening.ok() ? compete(std::move(listening).value(), deadline) : listening.status();
}

/// The processes meet at the master. Its process takes the name, so that others find the cluster.
base::Result<Place> Rendezvous::announce(Deadline deadline) {
  Place beside{false, arrival_.master, {}, {}};
  if (arrival_.rank > 0) return beside;
  const transport::Endpoint given = arrival_.listen_fd >= 0 ? transport::local_endpoint(arrival_.listen_fd) : transport::Endpoint{};
  const bool listens = given.length > 0 && (given.storage.ss_family == AF_INET || given.storage.ss_family == AF_INET6);
  // `polyverso run` listens on loopback for the processes of this machine.
  const bool reaches_others = listens && (!transport::is_loopback(given) || stays_on_loopback(arrival_.bind));
  base::Result<Listening> listening = Listening{};
  if (reaches_others) {
    auto told = advertised(transport::to_text(transport::host_port(given)));
    if (!told.ok()) return told.status();
    listening.value().address = std::move(told).value();
  } else {
    listening = listen(listens ? arrival_.bind : arrival_.master);
  }
  // Without a rank, this process is rank 0 if the address is free.
  if (!listening.ok() && arrival_.rank < 0) return beside;
  if (!listening.ok()) return listening.status();
  auto place = compete(std::move(listening).value(), deadline);
  if (place.ok()) place.value().master = arrival_.master;
  return place;
}

base::Result<Rendezvous::Listening> Rendezvous::listen(const std::string& where) const {
  const auto wished = runtime::listening_address(where);
  if (!wished.ok()) return wished.status();
  const auto parsed = transport::parse_address(wished.value());
  if (!parsed.ok()) return parsed.status();
  const auto endpoints = transport::resolve(parsed.value(), /*numeric_only=*/false, /*to_listen=*/true);
  if (!endpoints.ok()) return base::error(MV_EINVAL, "can't listen on {}", endpoints.status().text());
  auto fd = transport::listen_on(endpoints.value().front());
  if (!fd.ok()) return fd.status();
  auto told = advertised(transport::to_text(transport::host_port(transport::local_endpoint(fd.value().get()))));
  if (!told.ok()) return told.status();
  return Listening{std::move(fd).value(), std::move(told).value()};
}

base::Result<std::string> Rendezvous::advertised(const std::string& bound) const {
  // The interface by which this machine reaches etcd is likely the one by which others reach this machine.
  const std::string towards = address_.endpoints.empty() ? bound : transport::to_text(address_.endpoints.front());
  return runtime::advertised_address(arrival_.advertise, bound, towards);
}

base::Status Rendezvous::too_late(const std::optional<Entry>& found, const base::Status& unreachable) const {
  const std::string waited = in_words(arrival_.patience);
  if (found && is_rank_0())
    return base::error(MV_EADDRINUSE, "the cluster \"{}\" has a rank 0 already: pid {} on {}, at {}. Start this one under another name{}", address_.name,
                       found->pid, found->host, found->address,
                       arrival_.master.empty() ? ", or without a rank to take the place of a lost process" : "");
  if (found)
    return base::error(MV_EUNREACHABLE,
                       "rank 0 of the cluster \"{}\", pid {} on {}, can't be reached within {} ({}). Has it died? Is there a firewall?",
                       address_.name, found->pid, found->host, waited, unreachable.text());
  if (!unreachable.ok())
    return base::error(unreachable.code(), "rank 0 of the cluster \"{}\" was not found within {}: {}", address_.name, waited, unreachable.text());
  return base::error(
      MV_ETIMEOUT, "rank 0 of the cluster \"{}\" has not appeared in {} within {}: has it called mv_init() with the same keeper (POLYVERSO_KEEPER)?",
      address_.name, address_.where(), waited);
}

/// Waits for an entry whose process answers. An entry whose process does not is one of a process that has died, whose lease has not expired yet.
base::Result<Place> Rendezvous::wait_for_rank_0(Deadline deadline) {
  base::Status trouble;
  std::optional<Entry> found;
  bool warned = false;
  while (!stopping()) {
    auto looked = registry_->look(sooner(deadline, kPerQuestion));
    if (!looked.ok() && looked.status().code() != MV_EUNREACHABLE) return looked.status();
    trouble = looked.ok() ? base::Status() : looked.status();
    if (!looked.ok() && !std::exchange(warned, true)) base::log_warn("keeper: {}; trying again for {}", trouble.text(), in_words(arrival_.patience));
    found = looked.ok() ? looked.value() : std::nullopt;
    if (found) {
      if (const base::Status wrong = misleads(*found); !wrong.ok()) return wrong;
      trouble = answers(found->address);
      if (trouble.ok()) {
        set_state(fmt::format("rank 0 was found, pid {} on {}", found->pid, found->host));
        return Place{false, found->address, {}, {}};
      }
    }
    if (SteadyClock::now() >= deadline) return too_late(found, trouble);
    if (!trouble.ok()) std::this_thread::sleep_for(std::min<base::Nanos>(kAskAgain, deadline - SteadyClock::now()));
    if (trouble.ok())
      if (const base::Status waited = registry_->wait(sooner(deadline, kPerQuestion)); !waited.ok() && waited.code() != MV_EUNREACHABLE)
        return waited;
  }
  return base::Status(MV_ECANCELED, "the node is shutting down");
}

/// Rank 0 waits for a name whose process has died, or is about to end. A process without a rank joins a rank 0 that answers.
base::Result<Place> Rendezvous::compete(Listening listening, Deadline deadline) {
  const Entry own{listening.address, host_name(), static_cast<uint32_t>(getpid()), runtime::random_secret().substr(0, 32)};
  const Deadline end_of_other = sooner(deadline, registry_->free_after() + kForTheEnd);
  base::Status trouble;
  bool warned = false;
  while (!stopping()) {
    const auto claimed = registry_->claim(own, sooner(deadline, kPerQuestion));
    if (!claimed.ok() && claimed.status().code() != MV_EUNREACHABLE) return claimed.status();
    if (!claimed.ok() && !std::exchange(warned, true))
      base::log_warn("keeper: {}; trying again for {}", claimed.status().text(), in_words(arrival_.patience));
    if (claimed.ok() && !claimed.value()) {
      base::log_info("keeper: this process is rank 0 of the cluster \"{}\", at {}; {} has that, kept by {}", address_.name, own.address,
                     address_.where(), registry_->kept_by());
      set_state(fmt::format("this process is {}, kept by {}", kept_for_, registry_->kept_by()));
      return Place{true, own.address, own.address, std::move(listening.fd)};
    }
    trouble = claimed.ok() ? base::Status() : claimed.status();
    std::optional<Entry> found = claimed.ok() ? claimed.value() : std::nullopt;
    if (found && !is_rank_0()) {
      if (const base::Status wrong = misleads(*found); !wrong.ok()) return wrong;
      trouble = answers(found->address);
      if (trouble.ok()) {
        set_state(fmt::format("rank 0 was found, pid {} on {}", found->pid, found->host));
        return Place{false, found->address, {}, {}};
      }
    }
    if (SteadyClock::now() >= (found && is_rank_0() && answers(found->address).ok() ? end_of_other : deadline))
      return too_late(found, trouble);
    if (!trouble.ok()) std::this_thread::sleep_for(std::min<base::Nanos>(kAskAgain, deadline - SteadyClock::now()));
    if (trouble.ok())
      if (const base::Status waited = registry_->wait(sooner(deadline, kPerQuestion)); !waited.ok() && waited.code() != MV_EUNREACHABLE)
        return waited;
  }
  return base::Status(MV_ECANCELED, "the node is shutting down");
}

void Rendezvous::keep() {
  bool silent = false;
  while (true) {
    if (!pause(registry_->keep_every())) return registry_->release(SteadyClock::now() + kToRelease);
    const base::Status kept = registry_->keep(
        SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(std::max<base::Nanos>(registry_->keep_every(), kPerQuestion)));
    if (kept.code() == MV_ECANCELED) continue;
    if (kept.ok()) {
      if (std::exchange(silent, false)) base::log_info("keeper: {} has this process as {} of \"{}\" again", address_.where(), kept_for_, address_.name);
      set_state(fmt::format("this process is {}, kept by {}", kept_for_, registry_->kept_by()));
      continue;
    }
    set_state(kept.text());
    if (kept.code() == MV_ESTATE) {
      base::log_error(
          "keeper: the name \"{}\" belongs to another process now: {}. New processes join that one; this cluster continues without new ones",
          address_.name, kept.text());
      return;
    }
    if (!std::exchange(silent, true))
      base::log_warn("keeper: {}. This cluster continues; new processes do not find it, and after {} another rank 0 may take the name \"{}\"",
                     kept.text(), registry_->kept_by(), address_.name);
  }
}

base::Result<Standing> look_up(const std::string& keeper, const std::string& auth, base::Nanos patience) {
  const auto address = parse_address(keeper);
  if (!address.ok()) return address.status();
  base::Result<Standing> end = Standing{};
  auto thread = start_quiet_thread([&] {
    const auto deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(patience);
    const auto found = make_registry(address.value(), auth, 5s)->look(deadline);
    if (!found.ok()) return void(end = found.status());
    end.value().rank_0 = found.value();
    if (address.value().kind != Address::Kind::kEtcd) return;
    Etcd etcd(address.value(), auth);
    const auto left = etcd.time_left(rank_0_key(address.value()), deadline);
    const auto view = etcd.get(view_key(address.value()), deadline);
    if (left.ok()) end.value().lease_left = left.value();
    if (view.ok() && view.value()) end.value().view_revision = view.value()->revision;
  });
  if (!thread.ok()) return thread.status();
  thread.value().join();
  return end;
}

base::Result<std::string> find_rank_0(const std::string& keeper, const std::string& auth, base::Nanos patience) {
  const auto found = look_up(keeper, auth, patience);
  if (!found.ok()) return found.status();
  if (found.value().rank_0) return found.value().rank_0->address;
  const Address address = parse_address(keeper).value();
  return base::error(MV_ENOTFOUND, "no cluster \"{}\" runs: {} has no rank 0 of this name", address.name, address.where());
}

}  // namespace mv::runtime::keeper
