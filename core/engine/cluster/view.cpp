#include "engine/cluster/view.hpp"

#include <algorithm>
#include <cstring>

#include "wire/text.hpp"

namespace mv::cluster {

const Member* View::find(base::Peer peer) const { return const_cast<View*>(this)->find(peer); }

Member* View::find(base::Peer peer) {
  const auto found = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.peer == peer; });
  return found == members.end() ? nullptr : &*found;
}

namespace {

template <typename Is>
std::vector<const Member*> those(const std::vector<Member>& members, Is is) {
  std::vector<const Member*> out;
  for (const Member& member : members)
    if (is(member)) out.push_back(&member);
  return out;
}

int64_t position(const std::vector<const Member*>& list, base::Peer peer) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const Member* m) { return m->peer == peer; });
  return found == list.end() ? -1 : found - list.begin();
}

}  // namespace

std::vector<const Member*> View::workers() const {
  return those(members, [](const Member& m) { return m.is_worker(); });
}
std::vector<const Member*> View::servers() const {
  return those(members, [](const Member& m) { return m.is_server(); });
}
std::vector<const Member*> View::taken_places() const {
  return those(members, [](const Member& m) { return !m.is_vacant(); });
}
std::vector<const Member*> View::staying_servers() const {
  return those(members, [](const Member& m) { return m.is_server() && m.stays(); });
}
bool View::workers_gone() const {
  return std::ranges::none_of(members, [](const Member& m) { return m.is_worker() && m.state == State::kHere; });
}
bool View::has_departures() const {
  return moved || std::ranges::any_of(members, [](const Member& m) { return m.departs() || (m.stand_in != 0 && m.stand_in != kNobodyServes); });
}
int64_t View::worker_id(base::Peer peer) const { return position(workers(), peer); }
int64_t View::server_id(base::Peer peer) const { return position(servers(), peer); }

const Member* View::at(uint32_t rank) const {
  const auto found = std::ranges::find(members, rank, &Member::rank);
  return found != members.end() ? &*found : nullptr;
}

base::Status View::loss(uint64_t number) const {
  const uint64_t first = losses - loss_texts.size();
  if (number < first || number >= losses) return base::error(MV_EPEERLOST, "a member was lost");
  return base::Status(MV_EPEERLOST, loss_texts[number - first]);
}

base::Peer View::peer_at(uint32_t place) const {
  const Member* const member = place != 0 && place != kNobodyServes ? at(place - 1) : nullptr;
  return member != nullptr ? member->peer : base::kNobody;
}

base::Peer View::serving(const Member& server) const {
  if (server.stand_in != 0) return peer_at(server.stand_in);
  return server.is_out ? base::kNobody : server.peer;
}

std::string View::name(base::Peer peer) const {
  const Member* member = find(peer);
  if (member == nullptr) return short_name(peer);
  if (member->is_vacant()) return fmt::format("{} (rank {}, not there yet)", short_name(peer), member->rank);
  return fmt::format("{} (rank {}, pid {} on {})", short_name(peer), member->rank, member->pid, member->host);
}

std::string View::names(const std::vector<base::Peer>& peers) const {
  std::string names;
  for (const base::Peer peer : peers) names += (names.empty() ? "" : ", ") + name(peer);
  return names;
}

std::string View::short_name(base::Peer peer) const {
  const Member* member = find(peer);
  if (member == nullptr) return fmt::format("peer {:x}", peer);
  const bool worker = member->is_worker();
  return fmt::format("{} {}", worker ? "worker" : "server", worker ? worker_id(peer) : server_id(peer));
}

bool View::need_each_other(const Member& a, const Member& b) const {
  if ((a.is_worker() && b.is_server()) || (b.is_worker() && a.is_server())) return true;
  if (!a.is_server() || !b.is_server()) return false;
  const auto first = std::find_if(members.begin(), members.end(), [](const Member& m) { return m.is_server(); });
  return a.peer == first->peer || b.peer == first->peer;
}

Member read_member(const wire::Member& wire) {
  Member member;
  member.rank = wire.rank();
  member.role = wire.role();
  member.peer = wire.incarnation();
  member.address = wire::text_of(wire.address());
  member.host = wire::text_of(wire.host());
  member.pid = wire.pid();
  member.state = static_cast<State>(std::min<uint8_t>(static_cast<uint8_t>(wire.state()), 2));
  member.why = wire::text_of(wire.why());
  member.is_out = wire.out();
  member.stand_in = wire.stand_in();
  member.backup = wire.backup();
  member.next_backup = wire.next_backup();
  member.draining = wire.draining();
  member.drained = wire.drained();
  member.votes = wire.votes();
  return member;
}

flatbuffers::Offset<wire::Member> write_member(flatbuffers::FlatBufferBuilder& fbb, const Member& member) {
  return wire::CreateMemberDirect(fbb, member.rank, static_cast<uint8_t>(member.role), member.peer, member.address.c_str(), member.host.c_str(),
                                  member.pid, static_cast<wire::MemberState>(member.state), member.why.c_str(), member.is_out, member.stand_in, member.backup,
                                  member.next_backup, member.draining, member.drained, member.votes);
}

View read_view(const wire::View& wire) {
  View view;
  view.epoch = wire.epoch();
  view.sync = wire.sync();
  view.master = wire.master();
  view.losses = wire.losses();
  view.barriers = wire.barriers();
  view.wanted_servers = wire.wanted_servers();
  view.moved = wire.moved();
  if (wire.loss_texts() != nullptr)
    for (const flatbuffers::String* text : *wire.loss_texts()) view.loss_texts.push_back(text->str());
  if (wire.members() == nullptr) return view;
  for (const wire::Member* member : *wire.members()) view.members.push_back(read_member(*member));
  return view;
}

flatbuffers::Offset<wire::View> write_view(flatbuffers::FlatBufferBuilder& fbb, const View& view) {
  std::vector<flatbuffers::Offset<wire::Member>> members;
  for (const Member& member : view.members) members.push_back(write_member(fbb, member));
  const auto written = fbb.CreateVector(members);
  const auto texts = view.loss_texts.empty() ? 0 : fbb.CreateVectorOfStrings(view.loss_texts);
  return wire::CreateView(fbb, view.epoch, view.sync, written, view.master, view.losses, texts, view.barriers, view.wanted_servers, view.has_departures());
}

std::vector<std::byte> to_bytes(const View& view) {
  flatbuffers::FlatBufferBuilder fbb;
  fbb.Finish(write_view(fbb, view));
  const auto bytes = std::as_bytes(std::span(fbb.GetBufferPointer(), fbb.GetSize()));
  return {bytes.begin(), bytes.end()};
}

base::Result<View> from_bytes(std::span<const std::byte> bytes) {
  // FlatBuffers reads numbers where they are, so the copy is aligned.
  std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(aligned.data()), bytes.size());
  if (!verifier.VerifyBuffer<wire::View>(nullptr)) return base::error(MV_EPROTOCOL, "a list of members is not valid");
  return read_view(*flatbuffers::GetRoot<wire::View>(aligned.data()));
}

}  // namespace mv::cluster
