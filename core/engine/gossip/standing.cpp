#include "engine/gossip/standing.hpp"

#include <iterator>

#include <nlohmann/json.hpp>

#include "telemetry/exposition.hpp"

namespace mv::gossip {

std::string standing_text(const Standing& standing) {
  std::string text = fmt::format("{} at {}: clock {:g}, loss {:g}, {} updates, {} averaged (factor {:g}, disagreement {:g}); served {} versions, {} bytes\n",
                                 standing.name, standing.address, standing.clock, standing.loss, standing.updates, standing.averaged, standing.factor,
                                 standing.disagreement, standing.served_versions, standing.served_bytes);
  auto out = std::back_inserter(text);
  if (standing.exchanges)
    fmt::format_to(out, "symmetric exchanges: {} valid, {} half, {} unsettled\n", standing.exchanges->valid, standing.exchanges->half,
                   standing.exchanges->unsettled);
  if (!standing.metrics.empty()) fmt::format_to(out, "metrics at http://{}/metrics\n", standing.metrics);
  if (!standing.last.empty()) fmt::format_to(out, "last fetch: {}\n", standing.last);
  for (const PeerStanding& peer : standing.peers) {
    fmt::format_to(out, "  {:<12} {:<22} score {:4.0f}  {:>6} fetched  {:>6} failed  clock {:g}  loss {:g}  disagreement {:g}  {}{}\n", peer.name,
                   peer.address, peer.score, peer.fetched, peer.failed, peer.clock, peer.loss, peer.disagreement,
                   peer.road.empty() ? "not connected" : peer.road,
                   peer.waiting ? ", waits for an exchange" : "");
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
                     {"disagreement", peer.disagreement},
                     {"waiting", peer.waiting},
                     {"problem", peer.problem}});
  }
  Json all = {{"name", standing.name},
              {"address", standing.address},
              {"metrics", standing.metrics.empty() ? Json() : Json(standing.metrics)},
              {"clock", standing.clock},
              {"loss", standing.loss},
              {"updates", standing.updates},
              {"averaged", standing.averaged},
              {"factor", standing.factor},
              {"disagreement", standing.disagreement},
              {"served_versions", standing.served_versions},
              {"served_bytes", standing.served_bytes},
              {"fetched_bytes", standing.fetched_bytes},
              {"last", standing.last}};
  if (standing.exchanges)
    all["exchanges"] = {{"valid", standing.exchanges->valid}, {"half", standing.exchanges->half}, {"unsettled", standing.exchanges->unsettled}};
  all["peers"] = std::move(peers);
  // Reasons may quote what a peer sent.
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string standing_metrics(const Standing& standing) {
  telemetry::Exposition out;
  const telemetry::Label self{"node", standing.name};
  out.gauge("gossip_clock", "The node's clock: its updates, mixed with those of the peers that it was averaged with.");
  out.sample({self}, standing.clock);
  out.gauge("gossip_loss", "The loss that the node was told last.");
  out.sample({self}, standing.loss);
  out.gauge("gossip_disagreement", "Root mean square of the last peer's model less the node's own.");
  out.sample({self}, standing.disagreement);
  out.counter("gossip_updates_total", "Snapshots that the node has published.");
  out.sample({self}, standing.updates);
  out.counter("gossip_averages_total", "Peers' snapshots that it has taken in.");
  out.sample({self}, standing.averaged);
  out.counter("gossip_served_versions_total", "Snapshots that peers have begun to fetch by messages.");
  out.sample({self}, standing.served_versions);
  out.counter("gossip_served_bytes_total", "Bytes of snapshots, as encoded, that messages took to peers.");
  out.sample({self}, standing.served_bytes);
  out.counter("gossip_fetched_bytes_total", "Bytes of snapshots, as encoded, that messages brought.");
  out.sample({self}, standing.fetched_bytes);
  if (standing.exchanges) {
    out.counter("gossip_exchanges_total", "Symmetric exchanges, by how they ended.");
    out.sample({self, {"end", "valid"}}, standing.exchanges->valid);
    out.sample({self, {"end", "half"}}, standing.exchanges->half);
    out.sample({self, {"end", "unsettled"}}, standing.exchanges->unsettled);
  }
  out.gauge("gossip_peer_score", "How well a peer has answered, from 10 to 1000: the higher, the likelier it is asked.");
  for (const PeerStanding& peer : standing.peers) out.sample({self, {"peer", peer.name}}, peer.score);
  out.counter("gossip_peer_fetches_total", "Fetches from a peer, by how they ended.");
  for (const PeerStanding& peer : standing.peers) {
    out.sample({self, {"peer", peer.name}, {"end", "whole"}}, peer.fetched);
    out.sample({self, {"peer", peer.name}, {"end", "failed"}}, peer.failed);
  }
  out.gauge("gossip_peer_disagreement", "Root mean square of a peer's model less the node's own, when they were averaged last.");
  for (const PeerStanding& peer : standing.peers)
    if (peer.fetched > 0) out.sample({self, {"peer", peer.name}}, peer.disagreement);
  return out.take();
}

}  // namespace mv::gossip
