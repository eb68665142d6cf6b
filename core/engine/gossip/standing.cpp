#include "engine/gossip/standing.hpp"

#include <iterator>

#include <nlohmann/json.hpp>

namespace mv::gossip {

std::string standing_text(const Standing& standing) {
  std::string text =
      fmt::format("{} at {}: clock {:g}, loss {:g}, {} updates, {} averaged (factor {:g}), {} bytes served\n", standing.name, standing.address,
                  standing.clock, standing.loss, standing.updates, standing.averaged, standing.factor, standing.served_bytes);
  if (!standing.last.empty()) text += fmt::format("last fetch: {}\n", standing.last);
  auto out = std::back_inserter(text);
  for (const PeerStanding& peer : standing.peers) {
    fmt::format_to(out, "  {:<12} {:<22} score {:4.0f}  {:>6} fetched  {:>6} failed  clock {:g}  loss {:g}  {}\n", peer.name, peer.address,
                   peer.score, peer.fetched, peer.failed, peer.clock, peer.loss, peer.road.empty() ? "not connected" : peer.road);
    if (!peer.problem.empty()) fmt::format_to(out, "      {}\n", peer.problem);
  }
  return text;
}

std::string standing_json(const Standing& standing) {
  using Json = nlohmann::ordered_json;
  Json peers = Json::array();
  for (const PeerStanding& peer : standing.peers) {
    peers.push_back({{"name", peer.name},
                     {"address", peer.address},
                     {"road", peer.road.empty() ? Json() : Json(peer.road)},
                     {"score", peer.score},
                     {"fetched", peer.fetched},
                     {"failed", peer.failed},
                     {"clock", peer.clock},
                     {"loss", peer.loss},
                     {"problem", peer.problem}});
  }
  const Json all = {{"name", standing.name},         {"address", standing.address},   {"clock", standing.clock},
                    {"loss", standing.loss},         {"updates", standing.updates},   {"averaged", standing.averaged},
                    {"factor", standing.factor},     {"served_bytes", standing.served_bytes},
                    {"last", standing.last},         {"peers", std::move(peers)}};
  // Reasons may quote what a peer sent.
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mv::gossip
