#include "engine/cluster/strangers.hpp"

#include <utility>
#include <vector>

#include "base/log.hpp"

namespace mv::cluster {

namespace {
/// Messages that a non-member may send between two beats: a joiner sends pings, and probes for its Join.
constexpr uint32_t kMostOfStranger = 64;
}  // namespace

bool Strangers::hears(base::Peer from, const wire::Message& message, Sender sender) {
  Contact* const contact = contacts_.find(from);
  if (contact == nullptr) return false;
  if (from == roster_.master()) return roster_.may_send(from, sender);  // its answer to this node's Join
  const bool joins = message.body_type() == wire::Body::Join;
  const Member* const former = roster_.view().find(from);
  // The answer to the first HandOver was lost. Other requests of the leaver that come late must not end its connection before it has that answer.
  if (former != nullptr && former->drained) return message.body_type() == wire::Body::HandOver;
  const auto* inquire = message.body_as_Inquire();
  if (inquire != nullptr && !inquire->whole()) return false;  // observers ask for the whole status only
  switch (sender) {
    case Sender::kAnyone:
      // Bounds the number of answers to non-members. A process that was sent to a master which is gone, too, asks again.
      if (joins) contact->met = clock_.now();
      if (joins || message.seq() == 0) return ++contact->messages <= kMostOfStranger;
      break;
    case Sender::kAsked:
    case Sender::kMaster:
      return false;  // this node has made no request to it
    case Sender::kMember:
    case Sender::kCoordinator:
    case Sender::kNobody:
      break;
  }
  if (message.seq() == 0) return false;
  // The master knows all members. Another node may get messages of a new member before the master's view.
  if (roster_.is_master() || joins)
    turn_away(from, message.seq(),
              base::error(MV_EAUTH, "this process is not a member of the cluster: it must join with mv_init() before it sends {}",
                          wire::EnumNameBody(message.body_type())));
  else if (rpc::Seq& dropped = contact->dropped; dropped == 0 || message.seq() < dropped)
    dropped = message.seq();
  return false;
}

/// Answers `request`, unless it is 0, with the error and closes the connection.
void Strangers::turn_away(base::Peer peer, rpc::Seq request, const base::Status& why) {
  base::log_debug("rejected ({:016x}): {}", peer, why.text());
  if (request != 0) {
    base::Frame answer = builder_.answer(why);
    wire::stamp(answer, request, 0);
    link_.send(peer, answer);
  }
  link_.close(peer);
  turned_away_(peer, why);
}

void Strangers::welcome() {
  for (auto& [peer, contact] : contacts_)
    if (contact.dropped != 0 && roster_.is_member(peer)) {
      contact.dropped = 0;
      owner_.on_welcome(peer);
    }
}

/// True for a process that waits for its place, for the master, and for any process while this node itself is joining.
bool Strangers::may_yet_join(base::Peer peer) const {
  if (standing_.phase() == Phase::kJoining && !roster_.self().is_master) return true;
  if (newcomers_.has(peer)) return true;
  return (standing_.phase() == Phase::kJoining && founding_.arrivals().has(peer)) || peer == roster_.master();
}

void Strangers::watch(base::Nanos now) {
  std::vector<std::pair<base::Peer, rpc::Seq>> late;
  for (auto& [peer, contact] : contacts_) {
    contact.messages = 0;
    const base::Nanos timeout = roster_.self().heartbeat_timeout;
    if (contact.connected && !roster_.is_member(peer) && !may_yet_join(peer) && now - contact.met - timeout > timeout)
      late.emplace_back(peer, contact.dropped);
  }
  for (const auto& [peer, request] : late)
    turn_away(peer, request,
              base::error(MV_EAUTH, "this process has not become a member of the cluster: it must join with mv_init() at the master"));
}

}  // namespace mv::cluster
