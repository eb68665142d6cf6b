#include "engine/cluster/held_requests.hpp"

namespace mv::cluster {

void HeldRequests::keep(const rpc::Asked& asked, const wire::Message& request) {
  if (standing_.is_cut_off()) return fail(asked, request, standing_.why_cut_off());
  if (!roster_.is_kept() && roster_.has_lost_master())
    return fail(asked, request, base::error(MV_EPEERLOST, "this process is not the master, and the one before, {}, is lost", roster_.view().name(roster_.master())));
  held_.emplace_back(asked, wire::copy_header(request));
}

void HeldRequests::fail_all(const base::Status& why) {
  for (const auto& [asked, header] : take()) fail(asked, *flatbuffers::GetRoot<wire::Message>(header.data()), why);
}

void HeldRequests::fail(const rpc::Asked& asked, const wire::Message& request, const base::Status& why) {
  const bool is_of_drain = request.body_type() == wire::Body::Drain || request.body_type() == wire::Body::HandOver;
  if (!is_of_drain) return server_.fail(asked, why);
  server_.fail(asked, base::Status(roster_.is_kept() ? MV_EPEERLOST : MV_EUNREACHABLE, why.text()));  // after MV_EPEERLOST, a server that drains asks again
}

void HeldRequests::forget(base::Peer peer) {
  std::erase_if(held_, [peer](const Held& held) { return held.first.client == peer; });
}

bool HeldRequests::withdraw(const rpc::Asked& asked) {
  if (std::erase_if(held_, [&](const Held& held) { return held.first == asked; }) == 0) return false;
  server_.fail(asked, base::error(MV_ETIMEOUT, "the next master has not begun"));
  return true;
}

}  // namespace mv::cluster
