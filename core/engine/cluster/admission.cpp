#include "engine/cluster/admission.hpp"

namespace mv::cluster {

Sender sender_of(wire::Body body) {
  using wire::Body;
  switch (body) {  // without a default, so that the compiler reports a missing message type
    case Body::Join:
    case Body::Ping:
    case Body::Probe:
    case Body::Seen:
    case Body::Cancel:
    case Body::Inquire:
      return Sender::kAnyone;

    case Body::Barrier:
    case Body::Leave:
    case Body::Data:
    case Body::Create:
    case Body::Ready:
    case Body::GiveUp:
    case Body::Open:
    case Body::List:
    case Body::Destroy:
    case Body::Change:
    case Body::ChangeMany:
    case Body::GetMany:
    case Body::Get:
    case Body::Got:
    case Body::Clock:
    case Body::SetUpdater:
    case Body::Stat:
    case Body::Scan:
    case Body::Save:
    case Body::Saved:
    case Body::Load:
    case Body::Command:
    case Body::States:
    case Body::SetStates:
    case Body::Stuck:
    case Body::Collect:
    case Body::GroupNote:
    case Body::ChannelAsk:
    case Body::ChannelPart:
      return Sender::kMember;

    case Body::Progress:
    case Body::Reply:
    case Body::Ack:
    case Body::Grant:
    case Body::Created:
    case Body::Listing:
    case Body::Stats:
    case Body::Scanned:
    case Body::Saving:
    case Body::SavedFile:
    case Body::Loaded:
    case Body::StateRows:
    case Body::Report:
      return Sender::kAsked;

    case Body::View:
    case Body::Overview:
      return Sender::kMaster;

    case Body::Snapshot:
    case Body::Written:
    case Body::Check:
    case Body::Restore:
      return Sender::kFirstServer;

    case Body::NONE:
    case Body::Fetch:
    case Body::Fetched:
    case Body::Exchange:
      return Sender::kNobody;
  }
  return Sender::kNobody;
}

}  // namespace mv::cluster
