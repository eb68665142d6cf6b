#include "engine/cluster/publisher.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace mv::cluster {

using namespace std::chrono_literals;

void Publisher::begin() {
  log_.begin(roster_.view());
  if (roster_.self().replicas == 0) noted_ = roster_.view();
}

void Publisher::publish() {
  View& view = roster_.view();
  ++view.epoch;
  view.moved = view.has_departures();
  const base::Nanos due = published_ + between_views();
  if (view.workers_gone() || clock_.now() >= due) return send_to_all();  // at the end, this process may not have another turn
  publish_at_ = std::min(publish_at_, due);
}

void Publisher::send_to_all() {
  published_ = clock_.now();
  publish_at_ = base::kNever;
  note_view();
  tell_members(roster_.view());
}

void Publisher::note_view() {
  log_.follow(noted_, roster_.view());
  noted_ = roster_.view();
}

void Publisher::tell_members(const View& view) {
  std::map<uint64_t, base::Frame> frames;  // by the number of the receiver's view
  for (const Member& member : roster_.view().members) {
    Contact* const contact = contacts_.find(member.peer);
    if (member.peer == roster_.self().peer || contact == nullptr || !contact->connected) continue;
    const uint64_t has = std::max(contact->epoch, contact->told);
    if (has >= view.epoch) continue;
    const auto [frame, is_new] = frames.try_emplace(has);
    if (is_new) frame->second = log_.write(builder_, view, has);
    contact->told = view.epoch;
    link_.send(member.peer, frame->second);
  }
}

void Publisher::tell_again(base::Peer peer, Contact& contact, uint64_t has) {
  link_.send(peer, log_.write(builder_, roster_.decided(), has));
  contact.told = roster_.view().epoch;
}

void Publisher::answer(const rpc::Asked& asked, const View& view, base::Frame whole) {
  if (Contact* const contact = contacts_.find(asked.client)) contact->told = view.epoch;
  server_.answer(asked, std::move(whole));
}

/// The more members, the longer: each of them spends time on each member in a view.
base::Nanos Publisher::between_views() const {
  constexpr base::Nanos kForEachPair = 2us, kMost = 250ms;
  const auto members = static_cast<int64_t>(roster_.view().members.size());
  return std::min(members * members * kForEachPair, kMost);
}

}  // namespace mv::cluster
