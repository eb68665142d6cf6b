#include "engine/cluster/arrivals.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

namespace {
/// True for "127.x.y.z:port" and "[::1]:port". On another machine, such an address means that machine itself.
bool is_loopback(const std::string& address) { return address.starts_with("127.") || address.starts_with("[::1]"); }
bool is_tcp(const std::string& address) { return address.starts_with('[') || (!address.empty() && address.front() >= '0' && address.front() <= '9'); }
}  // namespace

void Arrivals::add_self() {
  Joiner self;
  self.member = {0, self_.role, self_.peer, self_.address, self_.host, self_.pid, MemberState::kHere, ""};
  self.wants_rank = 0;
  joiners_.push_back(std::move(self));
}

void Arrivals::add(const rpc::Asked& asked, const wire::Join& request) {
  Joiner joiner;
  joiner.member = {0, request.role(), asked.client, wire::text_of(request.address()), wire::text_of(request.host()), request.pid(), MemberState::kHere, ""};
  joiner.wants_rank = request.rank();
  joiner.asked = asked;
  joiners_.push_back(std::move(joiner));
  if (request.mode() != wire::Mode::Unsaid) sync_ = request.mode() == wire::Mode::Sync;
  sync_said_ |= request.mode() != wire::Mode::Unsaid;
  base::log_info("{} of {} processes have arrived", joiners_.size(), self_.nodes);
}

base::Status Arrivals::check(const wire::Join& request, const std::string& seen, bool is_late) const {
  if (request.nodes() != self_.nodes)
    return base::error(MV_EDISAGREE, "nodes={} here, but nodes={} at the master (pid {} on {})", request.nodes(), self_.nodes, self_.pid, self_.host);
  if (request.replicas() != self_.replicas)
    return base::error(MV_EDISAGREE, "replicas={} here, but replicas={} at the master (pid {} on {})", request.replicas(), self_.replicas, self_.pid, self_.host);
  const std::string given = wire::text_of(request.address());
  if (is_loopback(given) && !is_loopback(seen) && given != seen)
    return base::error(MV_EINVAL, "this process advertises {} to the others, but its connection comes from another machine, {}: set bind "
                       "(POLYVERSO_BIND) to its address or interface there, and advertise (POLYVERSO_ADVERTISE) if others see a different address", given, seen);
  const bool sync_said = request.mode() != wire::Mode::Unsaid, sync = request.mode() == wire::Mode::Sync;
  if (sync_said && sync_said_ && sync != sync_)
    return base::error(MV_EDISAGREE, "sync={:d} here, but sync={:d} in the cluster of the master (pid {} on {})", sync, sync_, self_.pid, self_.host);
  if (request.role() == 0 || request.role() > MV_ROLE_ALL) return base::error(MV_EPROTOCOL, "unknown role {}", request.role());
  if (request.rank() >= static_cast<int64_t>(self_.nodes) && !is_late) return base::error(MV_EDISAGREE, "rank {} does not exist in a cluster of {} processes", request.rank(), self_.nodes);
  return {};
}

base::Status Arrivals::check_rank(const wire::Join& request) const {
  for (const Joiner& other : joiners_)
    if (request.rank() >= 0 && other.wants_rank == request.rank())
      return base::error(MV_EDISAGREE, "rank {} is taken by pid {} on {}", request.rank(), other.member.pid, other.member.host);
  return {};
}

bool Arrivals::has(base::Peer peer) const {
  return std::ranges::any_of(joiners_, [&](const Joiner& joiner) { return joiner.member.peer == peer; });
}

void Arrivals::lost(base::Peer peer) {
  std::erase_if(joiners_, [&](const Joiner& joiner) { return joiner.member.peer == peer; });
}

bool Arrivals::withdraw(const rpc::Asked& asked) {
  return std::erase_if(joiners_, [&](const Joiner& joiner) { return joiner.asked == asked; }) != 0;
}

View Arrivals::view() {
  warn_of_loopback();
  std::set<int64_t> taken;
  for (const Joiner& joiner : joiners_)
    if (joiner.wants_rank >= 0) taken.insert(joiner.wants_rank);
  int64_t next = 0;
  View view;
  view.epoch = 1;
  view.sync = sync_;
  for (Joiner& joiner : joiners_) {
    while (taken.contains(next)) ++next;
    if (joiner.wants_rank < 0) taken.insert(joiner.wants_rank = next);
    joiner.member.rank = static_cast<uint32_t>(joiner.wants_rank);
    view.members.push_back(joiner.member);
  }
  std::ranges::sort(view.members, {}, &Member::rank);
  add_vacant_places(view);
  return view;
}

/// A place after the others, with a name of its own that no process has: incarnations are random.
Member& Arrivals::add_vacant_place(View& view, int32_t role) const {
  Member place;
  place.rank = static_cast<uint32_t>(view.members.size());
  place.role = role;
  place.peer = self_.peer + place.rank;
  while (place.peer == base::kNobody || view.find(place.peer) != nullptr) ++place.peer;
  place.is_out = true;
  return view.members.emplace_back(std::move(place));
}

void Arrivals::add_vacant_places(View& view) const {
  const size_t servers = view.servers().size(), workers = view.workers().size();
  for (size_t number = servers; servers > 0 && number < self_.max_servers; ++number) {
    Member& place = add_vacant_place(view, MV_ROLE_SERVER);
    place.state = MemberState::kLost;
    place.drained = true;
    place.why = "no server has joined in this place yet";
    place.stand_in = view.servers()[number % servers]->rank + 1;
  }
  view.elastic = self_.max_workers > 0;
  for (size_t number = workers; workers > 0 && number < self_.max_workers; ++number) add_vacant_place(view, MV_ROLE_WORKER).state = MemberState::kFinished;
}

std::vector<rpc::Asked> Arrivals::asked() const {
  std::vector<rpc::Asked> asked;
  for (const Joiner& joiner : joiners_)
    if (joiner.member.peer != self_.peer) asked.push_back(joiner.asked);
  return asked;
}

/// Warns if some members advertise loopback addresses and others do not. That works on one machine only.
void Arrivals::warn_of_loopback() const {
  const Joiner *here = nullptr, *beyond = nullptr;
  for (const Joiner& joiner : joiners_) {
    if (joiner.member.peer == self_.peer || !is_tcp(joiner.member.address)) continue;  // all have reached the master
    (is_loopback(joiner.member.address) ? here : beyond) = &joiner;
  }
  if (here != nullptr && beyond != nullptr)
    base::log_warn("pid {} on {} advertises {}, which other machines, such as that of {}, can't reach: set bind (POLYVERSO_BIND) there",
                   here->member.pid, here->member.host, here->member.address, beyond->member.address);
}

std::string Arrivals::text() const {
  std::set<int64_t> there;
  for (const Joiner& joiner : joiners_) there.insert(joiner.wants_rank);
  std::string ranks;
  for (int64_t rank = 0; rank < static_cast<int64_t>(self_.nodes) && !there.contains(-1); ++rank)
    if (!there.contains(rank)) ranks += fmt::format("{}{}", ranks.empty() ? "; missing: rank " : ", ", rank);
  return fmt::format("only {} of {} processes have arrived{}", joiners_.size(), self_.nodes, ranks);
}

}  // namespace mv::cluster
