#include "engine/cluster/connector.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
constexpr base::Nanos kRedialAfter = 50ms;
/// If nobody else would report its loss, a member is lost after this many failed dials in a row: a second, if nothing listens there any more.
constexpr uint32_t kMostFailedDials = 20;
}  // namespace

void Connector::want(base::Peer peer, Dialer dialer) {
  const Contact* const known = contacts_.find(peer);
  if (known != nullptr && known->wanted && known->connected) return;
  const Member* member = roster_.view().find(peer);
  if (member == nullptr || peer == roster_.self().peer || member->state == MemberState::kLost || roster_.ended_unmet(*member)) return;
  Contact& contact = contacts_[peer];
  const bool is_new = !std::exchange(contact.wanted, true);
  if (contact.connected) return;
  if (is_new) contact.heard = clock_.now();
  if (dialer == Dialer::kHigherRank && roster_.own()->rank < member->rank) return;
  if (!std::exchange(contact.dialed, true)) link_.dial(member->address);
}

void Connector::meet(base::Peer peer) {
  want(peer, Dialer::kSelf);
  if (!contacts_.is_connected(peer)) contacts_[peer].heard = clock_.now();
}

void Connector::dial_later(const std::string& address) { redial_[address] = clock_.now() + kRedialAfter; }

base::Nanos Connector::next_deadline() const {
  base::Nanos next = base::kNever;
  for (const auto& [address, at] : redial_) next = std::min(next, at);
  return next;
}

std::vector<std::string> Connector::due(base::Nanos now) {
  std::vector<std::string> due;
  for (const auto& [address, at] : redial_)
    if (at <= now) due.push_back(address);
  for (const std::string& address : due) redial_.erase(address);
  return due;
}

std::optional<Connector::Loss> Connector::dial_failed(const std::string& address, const base::Status& why) {
  const auto wanted = [&](const Member& m) { return m.address == address && roster_.needs(m) && !contacts_.is_connected(m.peer); };
  const auto member = std::ranges::find_if(roster_.view().members, wanted);
  if (member == roster_.view().members.end()) return std::nullopt;
  Contact& contact = contacts_[member->peer];
  if (is_refused_for_long(*member, contact, why)) return Loss{member->peer, base::error(MV_EPEERLOST, "it and this process can't connect: {}", why.text())};
  const bool has_never_met = !roster_.is_kept() && roster_.master_since() > 0 && contact.epoch == 0;  // a new master meets all members: only their silence counts
  if (++contact.failed_dials >= kMostFailedDials && !has_never_met && roster_.judges_alone(member->peer)) return Loss{member->peer, why};
  dial_later(address);
  return std::nullopt;
}

/// The log says once which member can't be connected with. One that lives, but refuses this process or is refused by it, will do so for ever, as
/// with a wrong certificate: then true, and what waits for the member fails. With replicas, servers report that to the master.
bool Connector::is_refused_for_long(const Member& member, Contact& contact, const base::Status& why) {
  if (contact.dials_fail_since == base::kNever) contact.dials_fail_since = clock_.now();
  const bool is_refused = why.code() != MV_EUNREACHABLE;
  const base::Nanos since = clock_.now() - contact.dials_fail_since, timeout = roster_.self().heartbeat_timeout;
  if ((is_refused || since > timeout) && !std::exchange(contact.told_of_failed_dials, true))
    base::log_warn("can't connect with {}, and tries again: {}", roster_.view().name(member.peer), why.text());
  return is_refused && !roster_.is_kept() && since > timeout;
}

}  // namespace mv::cluster
