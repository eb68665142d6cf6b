#include "engine/gossip/peer_book.hpp"

#include <algorithm>

namespace mv::gossip {

base::Status PeerBook::add(const Node& node) {
  if (auto status = check_node(node); !status.ok()) return status;
  if (node.port == 0) return base::error(MV_EINVAL, "node \"{}\" has the port 0, so it can't be reached", node.name);
  if (node.name == self_.name || peers_.contains(node.name))
    return base::error(MV_EDISAGREE, "node \"{}\" already exists; remove it first to give it another address", node.name);
  if (const PeerEntry* other = at_address(node.address()); other != nullptr || node.address() == self_.address())
    return base::error(MV_EDISAGREE, "node \"{}\" already has the address {}", other != nullptr ? other->node.name : self_.name, node.address());
  PeerEntry& peer = peers_[node.name];
  peer.node = node;
  by_address_[node.address()] = &peer;
  return {};
}

base::Result<PeerEntry> PeerBook::remove(const std::string& name) {
  auto taken = peers_.extract(name);
  if (taken.empty()) return base::error(MV_ENOTFOUND, "there is no peer \"{}\"", name);
  by_address_.erase(taken.mapped().node.address());
  return std::move(taken.mapped());
}

PeerEntry* PeerBook::find(const std::string& name) {
  const auto found = peers_.find(name);
  return found == peers_.end() ? nullptr : &found->second;
}

PeerEntry* PeerBook::at_address(const std::string& address) {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second;
}

PeerEntry* PeerBook::of_life(base::Peer life) {
  for (auto& [name, peer] : peers_)
    if (peer.life == life) return &peer;
  return nullptr;
}

PeerEntry* PeerBook::connected(base::Peer life, const std::string& address, base::Nanos now) {
  PeerEntry* peer = at_address(address);
  if (peer == nullptr) return nullptr;
  if (peer->last_life != life) {
    peer->score.restart(now);
    peer->problem.clear();
    peer->doubted = false;
  }
  peer->life = peer->last_life = life;
  peer->dialing = false;
  peer->told_of_way = false;
  return peer;
}

PeerEntry* PeerBook::choose_among(const std::vector<size_t>& places, const std::vector<PeerEntry*>& members, const std::set<std::string>& tried,
                                  base::Nanos now, Rng& rng) {
  std::vector<PeerEntry*> open;
  std::vector<double> scores;
  for (const size_t place : places) {
    PeerEntry* const peer = members[place];
    if (tried.contains(peer->node.name)) continue;
    open.push_back(peer);
    scores.push_back(peer->score.at(now));
  }
  return open.empty() ? nullptr : open[choose(scores, rng)];
}

std::vector<PeerEntry*> PeerBook::members() {
  std::vector<PeerEntry*> all;
  ptrdiff_t self = 0;
  for (auto& [name, peer] : peers_) {
    if (name < self_.name) ++self;
    all.push_back(&peer);
  }
  all.insert(all.begin() + self, nullptr);
  return all;
}

Neighbours PeerBook::places(uint64_t round, const std::vector<PeerEntry*>& members) const {
  const auto self = static_cast<size_t>(std::ranges::find(members, nullptr) - members.begin());
  return neighbours(topology_, self, members.size(), round, seed_);
}

PeerEntry* PeerBook::choose_next(uint64_t round, const std::set<std::string>& tried, base::Nanos now, Rng& rng) {
  const auto all = members();
  const Neighbours near = places(round, all);
  PeerEntry* const first = choose_among(near.first, all, tried, now, rng);
  return first != nullptr ? first : choose_among(near.rest, all, tried, now, rng);
}

bool PeerBook::has_next(uint64_t round, const std::set<std::string>& tried) {
  const auto all = members();
  const Neighbours near = places(round, all);
  const auto open = [&](size_t place) { return !tried.contains(all[place]->node.name); };
  return std::ranges::any_of(near.first, open) || std::ranges::any_of(near.rest, open);
}

}  // namespace mv::gossip
