// Runtime: the node's metrics, taken on the loop and formatted by the thread that asks.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "runtime/metrics.hpp"
#include "runtime/runtime.hpp"
#include "transport/tcp/interfaces.hpp"

namespace mv::runtime {

namespace {

/// A rank's counters continue when a new process takes a lost one's place.
void add(base::Traffic& to, const base::Traffic& more) {
  for (size_t transport = 0; transport < base::kTransportNames.size(); ++transport) {
    to.sent[transport].add(more.sent[transport]);
    to.received[transport].add(more.received[transport]);
  }
  to.reconnections += more.reconnections;
}

/// A store with more keys than this has one line for all of its keys.
constexpr size_t kMostKeys = 256;

/// The label of a table's metrics: its name, or "kv-0/*" for a key of a store with very many keys.
std::string label_of(const shard::Spec& spec, const std::map<std::string_view, size_t>& of_store) {
  const std::string_view store = spec.store();
  return store.empty() || of_store.at(store) <= kMostKeys ? spec.name : std::string(store) + "*";
}

}  // namespace

void Runtime::learn_ranks() {
  for (const cluster::Member& member : member_->cluster().view().members) ranks_[member.peer] = member.rank;
}

void Runtime::take_peers(Metrics& metrics) {
  const cluster::Cluster& cluster = member_->cluster();
  learn_ranks();
  if (cluster.self().replicas > 0) metrics.parts = Metrics::Parts{0, 0, member_->parts().differing(), member_->parts().journaled()};
  metrics.changes = changes_;
  for (const cluster::Member& member : cluster.view().members) {
    if (!member.is_vacant()) ++metrics.members[member.drained ? metrics.members.size() - 1 : static_cast<size_t>(member.state)];
    if (metrics.parts && member.is_server() && cluster.view().serving(member) == member_->self())
      ++(member.backups.size() >= cluster.self().replicas ? metrics.parts->kept : metrics.parts->missing);
    if (member.peer == member_->self()) continue;
    Metrics::Peer& peer = metrics.peers[std::to_string(member.rank)];
    peer.silence = cluster.contacts().silence(member.peer);
    if (const auto path = router_->path_to(member.peer)) peer.cipher = path->cipher;
  }
  metrics.certificate_expires = router_->certificate_expires();
  for (const auto& [peer, traffic] : router_->traffic()) {
    const auto rank = ranks_.find(peer);
    add(metrics.peers[rank != ranks_.end() ? std::to_string(rank->second) : ""].traffic, traffic);
  }
}

/// On the loop.
Metrics Runtime::take_metrics() {
  Metrics metrics;
  metrics.identity = identity_;
  metrics.uptime = std::chrono::steady_clock::now() - begun_;
  if (watched_) metrics.busy = loop_.busy();
  take_peers(metrics);
  std::map<std::string_view, size_t> of_store;
  for (const auto& [name, table] : member_->tables().catalogue().tables()) ++of_store[table->spec.store()];
  std::map<std::string, table::Used> own;
  for (const auto& [name, table] : member_->tables().catalogue().tables()) own[label_of(table->spec, of_store)].add(table->uses.total(table->spec));
  for (auto& [label, used] : own) metrics.own.push_back({label, used});
  std::vector<std::shared_ptr<shard::Shard>> parts;
  for (const table::Server* tables : member_->parts().served()) {
    const auto more = tables->parts();
    parts.insert(parts.end(), more.begin(), more.end());
    metrics.gated += tables->held();
  }
  of_store.clear();
  for (const auto& shard : parts) ++of_store[shard->spec().store()];
  std::map<std::string, shard::Usage> held;
  for (const auto& shard : parts) {
    shard::Usage& sum = held[label_of(shard->spec(), of_store)];
    const shard::Usage one = shard->usage();
    sum.stored += one.stored;
    sum.memory_bytes += one.memory_bytes;
    sum.state_bytes += one.state_bytes;
    sum.updates += one.updates;
    sum.host_bytes += one.host_bytes;
  }
  for (auto& [label, usage] : held) metrics.held.push_back({label, usage});
  for (const rpc::Server* streams : member_->parts().served_streams()) {
    std::ranges::transform(metrics.started, streams->started(), metrics.started.begin(), std::plus());
    metrics.duplicates += streams->duplicates();
  }
  metrics.calls = member_->tables().call_times();
  metrics.held_changes = member_->shards().gate_log().changes();
  metrics.held_gets = member_->shards().gate_log().gets();
  metrics.repeated = member_->requests().repeated() + member_->parts().repeated();
  metrics.refused = router_->refused();
  metrics.turned_away = router_->turned_away();
  metrics.in_flight = member_->tables().in_flight();
  metrics.checkpoints = member_->participant().record();
  metrics.reported = member_->status().reported().latest(loop_.now());
  return metrics;
}

base::Result<std::string> Runtime::metrics_text() {
  std::optional<Metrics> metrics;
  read_on_loop([&] { metrics = take_metrics(); });
  if (!metrics) return ended();
  return to_prometheus(*metrics);
}

status::Path Runtime::path_to_peer(base::Peer peer) const {
  status::Path path;
  if (const auto info = router_->path_to(peer)) {
    path.transport = base::kTransportNames[static_cast<size_t>(info->by)];
    path.cipher = info->cipher;
  }
  const auto traffic = router_->traffic().find(peer);
  if (traffic == router_->traffic().end()) return path;
  for (size_t transport = 0; transport < base::kTransportNames.size(); ++transport) {
    path.sent += traffic->second.sent[transport].bytes;
    path.received += traffic->second.received[transport].bytes;
  }
  return path;
}

// ---- over HTTP

/// Listens before anything else: a port in use must be reported before other processes wait for this one.
base::Status Runtime::serve_metrics() {
  if (settings_.metrics.empty() || http_ != nullptr) return {};
  auto server = transport::serve_http(settings_.metrics, [this](const std::string& path) { return answer(path); }, settings_.tls_settings());
  if (!server.ok()) return server.status();
  http_ = std::move(server).value();
  const std::string& address = http_->address();
  const bool encrypted = address.starts_with("https:");
  base::log_info("metrics at {}{}/metrics", encrypted ? "" : "http://", address);
  const std::string host = address.substr(0, address.rfind(':'));
  if (!encrypted && host != "localhost" && host != "[::1]" && !transport::is_loopback_text(host))
    base::log_warn("metrics at {} are not encrypted, and any process that reaches the port can read them; with tls=mutual, only clients with a certificate do", address);
  return {};
}

/// On the HTTP server's thread.
transport::HttpAnswer Runtime::answer(const std::string& path) {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  if (path != "/metrics" && path != "/trace" && path != "/healthz") return {404, kPlain, "not found: use /metrics, /trace or /healthz\n"};
  if (!ready_) return {503, kPlain, "the cluster is not complete yet\n"};
  const bool health = path == "/healthz", trace = path == "/trace";
  if (health) {
    bool turns = false;
    on_loop([&] { turns = true; });
    return turns ? transport::HttpAnswer{200, kPlain, "ok\n"} : transport::HttpAnswer{503, kPlain, "the node is shutting down\n"};
  }
  auto text = trace ? trace_text() : metrics_text();
  if (!text.ok()) return {503, kPlain, text.status().text() + "\n"};
  return {200, trace ? "application/json" : "text/plain; version=0.0.4; charset=utf-8", std::move(text).value()};
}

}  // namespace mv::runtime
