#include "engine/gossip/state.hpp"

#include <optional>

#include "base/json_writer.hpp"
#include "telemetry/exposition.hpp"

namespace mv::gossip {

std::string text_of(const GossipState& state) {
  std::string text = fmt::format("{} at {}: clock {:g}, loss {:g}, {} updates, {} averaged (factor {:g}, disagreement {:g}); served {} versions, {} bytes\n",
                                 state.name, state.address, state.clock, state.loss, state.updates, state.averaged, state.factor,
                                 state.disagreement, state.served_versions, state.served_bytes);
  if (state.exchanges)
    text += fmt::format("symmetric exchanges: {} valid, {} half, {} unsettled\n", state.exchanges->valid, state.exchanges->half,
                   state.exchanges->unsettled);
  if (!state.metrics.empty()) text += fmt::format("metrics at http://{}/metrics\n", state.metrics);
  if (!state.last.empty()) text += fmt::format("last fetch: {}\n", state.last);
  for (const PeerState& peer : state.peers) {
    text += fmt::format("  {:<12} {:<22} score {:4.0f}  {:>6} fetched  {:>6} failed  clock {:g}  loss {:g}  disagreement {:g}  {}{}\n", peer.name,
                   peer.address, peer.score, peer.fetched, peer.failed, peer.clock, peer.loss, peer.disagreement,
                   peer.transport.empty() ? "not connected" : peer.transport,
                   peer.waiting ? ", waiting for an exchange" : "");
    if (!peer.problem.empty()) text += fmt::format("      {}\n", peer.problem);
  }
  return text;
}

namespace {

std::optional<std::string> text_or_null(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

void write_peer(base::JsonWriter& json, const PeerState& peer) {
  json.field("name", peer.name);
  json.field("address", peer.address);
  json.field("transport", text_or_null(peer.transport));
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

std::string json_of(const GossipState& state) {
  base::JsonWriter json;
  json.object([&] {
    json.field("name", state.name);
    json.field("address", state.address);
    json.field("metrics", text_or_null(state.metrics));
    json.field("clock", state.clock);
    json.field("loss", state.loss);
    json.field("updates", state.updates);
    json.field("averaged", state.averaged);
    json.field("factor", state.factor);
    json.field("disagreement", state.disagreement);
    json.field("served_versions", state.served_versions);
    json.field("served_bytes", state.served_bytes);
    json.field("fetched_bytes", state.fetched_bytes);
    json.field("last", state.last);
    if (state.exchanges)
      json.object("exchanges", [&] {
        json.field("valid", state.exchanges->valid);
        json.field("half", state.exchanges->half);
        json.field("unsettled", state.exchanges->unsettled);
      });
    json.array("peers", [&] {
      for (const PeerState& peer : state.peers) json.object([&] { write_peer(json, peer); });
    });
  });
  return json.take();
}

std::string metrics_of(const GossipState& state) {
  telemetry::Exposition out;
  const telemetry::Label self{"node", state.name};
  out.gauge("gossip_clock", "The node's clock: its updates, mixed with those of the peers that it was averaged with.");
  out.sample({self}, state.clock);
  out.gauge("gossip_loss", "The last loss that was reported to the node.");
  out.sample({self}, state.loss);
  out.gauge("gossip_disagreement", "Root mean square of the difference between the last peer's model and the node's own.");
  out.sample({self}, state.disagreement);
  out.counter("gossip_updates_total", "Snapshots that the node has published.");
  out.sample({self}, state.updates);
  out.counter("gossip_averages_total", "Peers' snapshots that the node has averaged with.");
  out.sample({self}, state.averaged);
  out.counter("gossip_served_versions_total", "Snapshots that peers began to fetch through messages.");
  out.sample({self}, state.served_versions);
  out.counter("gossip_served_bytes_total", "Encoded bytes of snapshots sent to peers in messages.");
  out.sample({self}, state.served_bytes);
  out.counter("gossip_fetched_bytes_total", "Encoded bytes of snapshots received in messages.");
  out.sample({self}, state.fetched_bytes);
  if (state.exchanges) {
    out.counter("gossip_exchanges_total", "Symmetric exchanges by outcome.");
    out.sample({self, {"end", "valid"}}, state.exchanges->valid);
    out.sample({self, {"end", "half"}}, state.exchanges->half);
    out.sample({self, {"end", "unsettled"}}, state.exchanges->unsettled);
  }
  out.gauge("gossip_peer_score", "How well a peer has answered, from 10 to 1000: peers with higher scores are asked more often.");
  for (const PeerState& peer : state.peers) out.sample({self, {"peer", peer.name}}, peer.score);
  out.counter("gossip_peer_fetches_total", "Fetches from a peer by outcome.");
  for (const PeerState& peer : state.peers) {
    out.sample({self, {"peer", peer.name}, {"end", "whole"}}, peer.fetched);
    out.sample({self, {"peer", peer.name}, {"end", "failed"}}, peer.failed);
  }
  out.gauge("gossip_peer_disagreement", "Root mean square of the difference between a peer's model and the node's own at their last average.");
  for (const PeerState& peer : state.peers)
    if (peer.fetched > 0) out.sample({self, {"peer", peer.name}}, peer.disagreement);
  return out.take();
}

}  // namespace mv::gossip
