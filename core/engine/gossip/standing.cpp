#include "engine/gossip/standing.hpp"

#include <iterator>
#include <optional>

#include "base/json_writer.hpp"
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

namespace {

std::optional<std::string> text_or_null(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

void write_peer(base::JsonWriter& json, const PeerStanding& peer) {
  json.field("name", peer.name);
  json.field("address", peer.address);
  json.field("road", text_or_null(peer.road));
  json.field("score", peer.score);
  json.field("fetched", peer.fetched);
  json.field("failed", peer.failed);
  json.field("clock", peer.clock);
  json.field("loss", peer.loss);
  json.field("disagreement", peer.disagreement);
  json.field("waiting", peer.waiting);
  json.field("problem", peer.problem);
}

}  // namespace

std::string standing_json(const Standing& standing) {
  base::JsonWriter json;
  json.object([&] {
    json.field("name", standing.name);
    json.field("address", standing.address);
    json.field("metrics", text_or_null(standing.metrics));
    json.field("clock", standing.clock);
    json.field("loss", standing.loss);
    json.field("updates", standing.updates);
    json.field("averaged", standing.averaged);
    json.field("factor", standing.factor);
    json.field("disagreement", standing.disagreement);
    json.field("served_versions", standing.served_versions);
    json.field("served_bytes", standing.served_bytes);
    json.field("fetched_bytes", standing.fetched_bytes);
    json.field("last", standing.last);
    if (standing.exchanges)
      json.object("exchanges", [&] {
        json.field("valid", standing.exchanges->valid);
        json.field("half", standing.exchanges->half);
        json.field("unsettled", standing.exchanges->unsettled);
      });
    json.array("peers", [&] {
      for (const PeerStanding& peer : standing.peers) json.object([&] { write_peer(json, peer); });
    });
  });
  return json.take();
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
