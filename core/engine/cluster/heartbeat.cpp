// Heartbeats: members that are connected send each other pings, and one that is silent for too long is lost.

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

namespace {
/// Bytes of the text of a wait.
constexpr size_t kLongestWait = 200;
}  // namespace

void Cluster::send_ping(base::Peer to, uint64_t asks, uint64_t answers) {
  const std::string waits = to == roster_.master() ? owner_.own_wait() : "";
  link_.send(to, builder_.finish(wire::Body::Ping, wire::CreatePingDirect(builder_.fbb(), roster_.view().epoch, asks, answers, waits.c_str(), calls_.passed(), calls_.told(), decisions_.is_undecided())));
}

void Cluster::ask_all() {
  const uint64_t question = contacts_.ask();
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected) send_ping(peer, question);
}

void Cluster::on_ping(base::Peer from, const wire::Ping& ping) {
  Contact& contact = contacts_[from];
  contact.epoch = std::max(contact.epoch, ping.epoch());
  if (from == roster_.master()) roster_.set_master_is_undecided(ping.undecided());
  if (roster_.is_master()) contact.waits = wire::text_of(ping.waits()).substr(0, kLongestWait);
  if (roster_.is_master() && ping.epoch() >= roster_.master_since()) barrier_.follow(from, ping.barriers(), ping.losses());
  // Its newest view may be on its way. If it was lost, the member asks again.
  const bool is_due = publisher_.is_due();
  if ((roster_.is_master() || standing_.has_given_role()) && !is_due && ping.epoch() < roster_.view().epoch && roster_.view().find(from) != nullptr && ping.epoch() > 0) {
    publisher_.tell_again(from, contact, ping.epoch());
  }
  if (ping.asks() != 0 && (roster_.is_member(from) || from == roster_.master())) send_ping(from, 0, ping.asks());
  contacts_.answered(contact, ping.answers());
  if (!early_.empty()) settle_at_ = clock_.now();
  ready_if_all_ready();
}

void Cluster::beat(base::Nanos now) {
  // Time in which this node itself did not run does not count as silence.
  const base::Nanos starved = this->starved(now);
  last_beat_ = now;
  next_beat_ = now + interval();
  std::vector<std::pair<base::Peer, base::Nanos>> silent;
  for (auto& [peer, contact] : contacts_) {
    if (contact.spoke && now - contact.heard - starved > self_.heartbeat_timeout / 2) contact.silent_until = now;
    contact.heard = std::exchange(contact.spoke, false) ? now : contact.heard + starved;
    if (!contact.connected && !roster_.judges_alone(peer)) continue;
    if (now - contact.heard > self_.heartbeat_timeout)
      silent.emplace_back(peer, now - contact.heard);
    else if (contact.connected)
      send_ping(peer);
  }
  const bool misses_members = std::ranges::any_of(silent, [this](const auto& entry) { return roster_.is_member(entry.first); });
  if (misses_members && roster_.is_master() && roster_.is_kept() && !standing_.is_cut_off() && !standing_.is_drained() && !roster_.decided().workers_gone() && !hears_quorum()) {
    const auto longest = std::ranges::max(silent, {}, [](const auto& entry) { return entry.second; }).second;
    if (longest > self_.heartbeat_timeout + 4 * interval())
      return cut_off(base::error(MV_EPEERLOST, "this process, the master, does not hear from most of the processes that decide about the members"));
    silent.clear();  // the others may be slow
  }
  for (const auto& [peer, span] : silent) {
    link_.close(peer);
    // Not for other losses: at Ctrl-C all processes end at once, and their last words are the launcher's.
    if (roster_.is_master() && roster_.view().find(peer) != nullptr)
      base::log_warn("{} is lost: nothing heard from it for {:.2g} s", roster_.view().name(peer), base::seconds(span));
    on_lost(peer, base::error(MV_EPEERLOST, "nothing heard from it for {:.2g} s", base::seconds(span)));
  }
  report_unreachable();
  watch_strangers(now);
  tell_of_arrivals(now);
}

bool Cluster::was_silent(base::Peer peer) const {
  const Contact* const contact = contacts_.find(peer);
  if (contact == nullptr) return false;
  const base::Nanos now = clock_.now();
  if (now - contact->heard - starved(now) > self_.heartbeat_timeout / 2) return true;  // the next beat will note it
  return contact->silent_until != base::kNever && now - contact->silent_until < 2 * self_.heartbeat_timeout;
}

}  // namespace mv::cluster
