#include "engine/cluster/heartbeat.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

void Heartbeat::start() {
  last_beat_ = clock_.now();
  next_beat_ = last_beat_ + interval();
}

void Heartbeat::ping(base::Peer to, uint64_t asks, uint64_t answers) {
  const std::string waits = to == roster_.master() ? owner_.own_wait() : "";
  link_.send(to, builder_.finish(wire::Body::Ping, wire::CreatePingDirect(builder_.fbb(), roster_.view().epoch, asks, answers, waits.c_str(), calls_.passed(),
                                                                          calls_.told(), decisions_.is_undecided())));
}

void Heartbeat::ping_members() {
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && roster_.is_member(peer)) ping(peer);
}

void Heartbeat::ask_all() {
  const uint64_t question = contacts_.ask();
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected) ping(peer, question);
}

/// Time in which this node itself did not run does not count as silence.
base::Nanos Heartbeat::starved(base::Nanos now) const { return std::max(base::Nanos(0), now - last_beat_ - 2 * interval()); }

std::vector<Heartbeat::Silence> Heartbeat::beat(base::Nanos now) {
  const base::Nanos starved = this->starved(now), timeout = roster_.self().heartbeat_timeout;
  last_beat_ = now;
  next_beat_ = now + interval();
  std::vector<Silence> silent;
  for (auto& [peer, contact] : contacts_) {
    if (contact.spoke && now - contact.heard - starved > timeout / 2) contact.silent_until = now;
    contact.heard = std::exchange(contact.spoke, false) ? now : contact.heard + starved;
    if (!contact.connected && !roster_.judges_alone(peer)) continue;
    if (now - contact.heard > timeout)
      silent.push_back({peer, now - contact.heard});
    else if (contact.connected)
      ping(peer);
  }
  return silent;
}

bool Heartbeat::was_silent(base::Peer peer) const {
  const Contact* const contact = contacts_.find(peer);
  if (contact == nullptr) return false;
  const base::Nanos now = clock_.now(), timeout = roster_.self().heartbeat_timeout;
  if (now - contact->heard - starved(now) > timeout / 2) return true;  // the next beat will note it
  return contact->silent_until != base::kNever && now - contact->silent_until < 2 * timeout;
}

std::set<base::Peer> Heartbeat::heard() const {
  std::set<base::Peer> heard{roster_.self().peer};
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && clock_.now() - contact.heard <= roster_.self().heartbeat_timeout - 2 * interval()) heard.insert(peer);
  return heard;
}

}  // namespace mv::cluster
