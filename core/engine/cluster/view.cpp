#include "engine/cluster/view.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "wire/text.hpp"

namespace mv::cluster {

const Member* View::find(base::Peer peer) const { return const_cast<View*>(this)->find(peer); }

Member* View::find(base::Peer peer) {
  const size_t place = index_.find(members, peer);
  return place < members.size() ? &members[place] : nullptr;
}

size_t PeerIndex::find(const std::vector<Member>& members, base::Peer peer) {
  constexpr size_t kSearched = 16;  // a list that is as short is searched faster
  if (members.size() > kSearched && !slots_.empty())
    for (size_t slot = slot_of(peer); slots_[slot] != 0; slot = (slot + 1) % slots_.size())
      if (const size_t place = slots_[slot] - 1; place < members.size() && members[place].peer == peer) return place;
  const auto found = std::ranges::find(members, peer, &Member::peer);
  if (found == members.end()) return SIZE_MAX;
  if (members.size() > kSearched) build(members);
  return static_cast<size_t>(found - members.begin());
}

void PeerIndex::build(const std::vector<Member>& members) {
  const int bits = std::bit_width(2 * members.size());
  slots_.assign(size_t{1} << bits, 0);  // may throw
  shift_ = 64 - bits;
  for (size_t place = 0; place < members.size(); ++place) {
    size_t slot = slot_of(members[place].peer);
    while (slots_[slot] != 0) slot = (slot + 1) % slots_.size();
    slots_[slot] = static_cast<uint32_t>(place + 1);
  }
}

namespace {

template <typename Is>
std::vector<const Member*> those(const std::vector<Member>& members, Is is) {
  std::vector<const Member*> out;
  for (const Member& member : members)
    if (is(member)) out.push_back(&member);
  return out;
}

/// The number of this member among those that are of its kind; -1: it is not one of them.
template <typename Is>
int64_t position(const std::vector<Member>& members, const Member* member, Is is) {
  if (member == nullptr || !is(*member)) return -1;
  return std::count_if(members.data(), member, is);
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
std::vector<base::Peer> View::active_workers() const {
  std::vector<base::Peer> active;
  for (const Member* worker : workers())
    if (worker->state == MemberState::kHere) active.push_back(worker->peer);
  return active;
}

bool View::workers_gone() const {
  return std::ranges::none_of(members, [](const Member& m) { return m.is_worker() && m.state == MemberState::kHere; });
}
bool View::has_departures() const {
  return moved || std::ranges::any_of(members, [](const Member& m) { return m.departs() || (m.stand_in != 0 && m.stand_in != kNobodyServes); });
}
int64_t View::worker_id(base::Peer peer) const { return position(members, find(peer), std::mem_fn(&Member::is_worker)); }
int64_t View::server_id(base::Peer peer) const { return position(members, find(peer), std::mem_fn(&Member::is_server)); }

Member* View::at(uint32_t rank) {
  if (rank < members.size() && members[rank].rank == rank) return &members[rank];
  const auto found = std::ranges::find(members, rank, &Member::rank);
  return found != members.end() ? &*found : nullptr;
}

void View::take_losses(const View& newer) {
  const auto& told = newer.loss_texts;
  const uint64_t more = newer.losses - std::min(newer.losses, losses);
  const size_t missing = std::min<uint64_t>(told.size(), more);
  if (more > told.size()) loss_texts.clear();  // the last ones follow each other without a gap
  losses = newer.losses;
  loss_texts.insert(loss_texts.end(), told.end() - static_cast<ptrdiff_t>(missing), told.end());
  if (loss_texts.size() > kLossTexts) loss_texts.erase(loss_texts.begin(), loss_texts.end() - kLossTexts);
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

std::vector<base::Peer> View::chain_of(const Member& server) const {
  std::vector<base::Peer> chain;
  if (serving(server) == base::kNobody) return chain;
  chain.push_back(serving(server));
  for (const uint32_t backup : server.backups) chain.push_back(peer_at(backup));
  return chain;
}

base::Peer View::tail_of(const Member& server) const {
  return server.backups.empty() ? serving(server) : peer_at(server.backups.back());
}

std::string View::name(base::Peer peer) const {
  const Member* member = find(peer);
  if (member == nullptr) return short_name(peer);
  return long_name(*member, short_name(peer));
}

std::vector<std::string> View::worker_names() const {
  std::vector<std::string> names;
  for (const Member& member : members)
    if (member.is_worker()) names.push_back(long_name(member, fmt::format("worker {}", names.size())));
  return names;
}

std::string View::long_name(const Member& member, const std::string& short_name) {
  if (member.is_vacant()) return fmt::format("{} (rank {}, not there yet)", short_name, member.rank);
  return fmt::format("{} (rank {}, pid {} on {})", short_name, member.rank, member.pid, member.host);
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
  member.state = static_cast<MemberState>(std::min<uint8_t>(static_cast<uint8_t>(wire.state()), 2));
  member.why = wire::text_of(wire.why());
  member.is_out = wire.out();
  member.stand_in = wire.stand_in();
  if (wire.backups() != nullptr) member.backups.assign(wire.backups()->begin(), wire.backups()->end());
  member.next_backup = wire.next_backup();
  member.draining = wire.draining();
  member.drained = wire.drained();
  member.votes = wire.votes();
  member.losses = wire.losses();
  return member;
}

flatbuffers::Offset<wire::Member> write_member(flatbuffers::FlatBufferBuilder& fbb, const Member& member) {
  return wire::CreateMemberDirect(fbb, member.rank, static_cast<uint8_t>(member.role), member.peer, member.address.c_str(), member.host.c_str(),
                                  member.pid, static_cast<wire::MemberState>(member.state), member.why.c_str(), member.is_out, member.stand_in,
                                  member.backups.empty() ? nullptr : &member.backups, member.next_backup, member.draining, member.drained, member.votes,
                                  member.losses);
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
  view.elastic = wire.elastic();
  if (wire.loss_texts() != nullptr)
    for (const flatbuffers::String* text : *wire.loss_texts()) view.loss_texts.push_back(text->str());
  if (wire.members() == nullptr) return view;
  for (const wire::Member* member : *wire.members()) view.members.push_back(read_member(*member));
  return view;
}

flatbuffers::Offset<wire::View> write_view(flatbuffers::FlatBufferBuilder& fbb, const View& view) {
  std::vector<const Member*> members;
  for (const Member& member : view.members) members.push_back(&member);
  return write_changes(fbb, view, members, view.loss_texts, 0);
}

flatbuffers::Offset<wire::View> write_changes(flatbuffers::FlatBufferBuilder& fbb, const View& view, const std::vector<const Member*>& members,
                                              std::span<const std::string> loss_texts, uint64_t base) {
  std::vector<flatbuffers::Offset<wire::Member>> list;
  for (const Member* member : members) list.push_back(write_member(fbb, *member));
  const auto written = fbb.CreateVector(list);
  const auto texts = loss_texts.empty() ? 0 : fbb.CreateVectorOfStrings({loss_texts.begin(), loss_texts.end()});
  return wire::CreateView(fbb, view.epoch, view.sync, written, view.master, view.losses, texts, view.barriers, view.wanted_servers, view.has_departures(), base,
                          view.workers_gone(), view.elastic);
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
