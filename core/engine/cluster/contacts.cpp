#include "engine/cluster/contacts.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

Contact* Contacts::find(base::Peer peer) {
  const auto found = all_.find(peer);
  return found == all_.end() ? nullptr : &found->second;
}

const Contact* Contacts::find(base::Peer peer) const {
  const auto found = all_.find(peer);
  return found == all_.end() ? nullptr : &found->second;
}

bool Contacts::is_connected(base::Peer peer) const {
  const Contact* contact = find(peer);
  return contact != nullptr && contact->connected;
}

bool Contacts::is_wanted(base::Peer peer) const {
  const Contact* contact = find(peer);
  return contact != nullptr && contact->wanted;
}

Contact& Contacts::connected(base::Peer peer, const std::string& address) {
  Contact& contact = all_[peer];
  contact.connected = true;
  contact.address = address;
  contact.heard = contact.noted = clock_.now();
  contact.failed_dials = 0;
  contact.dials_fail_since = base::kNever;
  contact.told_of_failed_dials = false;
  contact.told = 0;  // messages of an earlier connection may be lost
  if (contact.met == base::Nanos(0)) contact.met = clock_.now();
  return contact;
}

void Contacts::heard(base::Peer peer) {
  Contact* const contact = find(peer);
  if (contact != nullptr) contact->spoke = contact->spoke_lately = true;
}

std::optional<base::Nanos> Contacts::silence(base::Peer peer) const {
  if (!is_connected(peer)) return std::nullopt;
  const Contact* contact = find(peer);
  return contact->spoke_lately ? base::Nanos(0) : clock_.now() - contact->noted;
}

void Contacts::note_silence() {
  for (auto& [peer, contact] : all_)
    if (std::exchange(contact.spoke_lately, false)) contact.noted = clock_.now();
}

uint64_t Contacts::ask() {
  ++questions_;
  for (auto& [peer, contact] : all_) {
    if (!contact.connected) continue;
    contact.question = questions_;
    contact.asked = clock_.now();
    contact.round_trip = base::kNever;
  }
  return questions_;
}

void Contacts::answered(Contact& contact, uint64_t question) const {
  if (question == 0 || question != contact.question) return;
  contact.question = 0;
  contact.round_trip = clock_.now() - contact.asked;
}

size_t Contacts::unanswered() const {
  return static_cast<size_t>(std::ranges::count_if(all_, [](const auto& entry) { return entry.second.question != 0; }));
}

std::optional<base::Nanos> Contacts::round_trip(base::Peer peer) const {
  if (!is_connected(peer)) return std::nullopt;
  return find(peer)->round_trip;
}

}  // namespace mv::cluster
