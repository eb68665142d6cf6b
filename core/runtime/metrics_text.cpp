#include "runtime/metrics.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/version.hpp"
#include "telemetry/exposition.hpp"

namespace mv::runtime {

namespace {

using telemetry::Exposition;


void write_node(Exposition& out, const Metrics& metrics) {
  const Identity& self = metrics.identity;
  out.gauge("build_info", "The library's version; the value is always 1.");
  out.sample({{"version", base::version_text()}}, uint64_t{1});
  out.gauge("node_info", "This process's place in the cluster; the value is always 1.");
  out.sample({{"rank", std::to_string(self.rank)},
              {"worker", self.worker_id < 0 ? "" : std::to_string(self.worker_id)},
              {"server", self.server_id < 0 ? "" : std::to_string(self.server_id)},
              {"mode", self.sync ? "sync" : "async"}},
             uint64_t{1});
  out.gauge("uptime_seconds", "Time since this node was started.");
  out.sample({}, base::seconds(metrics.uptime));
  out.gauge("members", "Processes of the cluster, by state.");
  constexpr const char* kStates[] = {"here", "finished", "lost", "left"};
  for (size_t state = 0; state < metrics.members.size(); ++state) out.sample({{"state", kStates[state]}}, metrics.members[state]);
  out.counter("membership_changes_total", "Changes of the membership that this process has learnt of, by kind: mv_membership_next().");
  for (size_t kind = 0; kind < metrics.changes.size(); ++kind) out.sample({{"kind", cluster::kChangeNames[kind]}}, metrics.changes[kind]);
  if (metrics.parts) {
    out.gauge("parts", "Servers' parts of the tables that this process serves, by whether as many other processes keep copies as they should: replicas.");
    out.sample({{"backup", "kept"}}, metrics.parts->kept);
    out.sample({{"backup", "missing"}}, metrics.parts->missing);
    out.gauge("copies_differing", "Tables that this process keeps a copy of, and whose values have differed from their server's.");
    out.sample({}, metrics.parts->differing);
    out.counter("journaled_inputs_total", "Changes of tables that were acknowledged when they were in memory shared with the back-up, before it had processed them.");
    out.sample({}, metrics.parts->journaled);
  }
  if (metrics.busy) {
    out.counter("loop_busy_seconds_total", "Time that the node's loop was awake, including the time it spent spinning.");
    out.sample({}, base::seconds(*metrics.busy));
  }
  out.gauge("reported", "The latest of each number that the program has reported: mv_report().");
  for (const status::ReportedNumber& each : metrics.reported) out.sample({{"name", each.name}}, each.value);
  out.gauge("inflight_bytes", "Payload of asynchronous calls of this process that have not finished.");
  out.sample({}, metrics.in_flight);
}

using Read = uint64_t (*)(const base::Flow&);

void write_flows(Exposition& out, const Metrics& metrics, base::Traffic::ByTransport base::Traffic::*direction, Read read) {
  for (const auto& [rank, peer] : metrics.peers)
    for (size_t transport = 0; transport < base::kTransportNames.size(); ++transport) {
      const base::Flow& flow = (peer.traffic.*direction)[transport];
      if (flow.messages > 0) out.sample({{"peer", rank}, {"transport", base::kTransportNames[transport]}}, read(flow));
    }
}

void write_peers(Exposition& out, const Metrics& metrics) {
  const Read messages = [](const base::Flow& flow) { return flow.messages; };
  const Read bytes = [](const base::Flow& flow) { return flow.bytes; };
  out.counter("peer_sent_messages_total", "Messages sent, by the peer's rank and transport.");
  write_flows(out, metrics, &base::Traffic::sent, messages);
  out.counter("peer_sent_bytes_total", "Bytes of these messages, with headers.");
  write_flows(out, metrics, &base::Traffic::sent, bytes);
  out.counter("peer_received_messages_total", "Messages received, by the peer's rank and transport.");
  write_flows(out, metrics, &base::Traffic::received, messages);
  out.counter("peer_received_bytes_total", "Bytes of these messages, with headers.");
  write_flows(out, metrics, &base::Traffic::received, bytes);
  out.counter("peer_reconnections_total", "Times that the connection to a peer was restored or replaced.");
  for (const auto& [rank, peer] : metrics.peers) out.sample({{"peer", rank}}, peer.traffic.reconnections);
  out.gauge("peer_encrypted", "Peers whose connection is encrypted, by cipher; the value is always 1.");
  for (const auto& [rank, peer] : metrics.peers)
    if (!peer.cipher.empty()) out.sample({{"peer", rank}, {"cipher", peer.cipher}}, uint64_t{1});
  if (metrics.certificate_expires) {
    out.gauge("tls_certificate_expires_seconds", "Time at which this node's certificate expires, in seconds since 1970.");
    out.sample({}, static_cast<uint64_t>(*metrics.certificate_expires));
  }
  out.gauge("peer_silence_seconds", "Time since the last message from a connected peer, including heartbeats.");
  for (const auto& [rank, peer] : metrics.peers)
    if (peer.silence) out.sample({{"peer", rank}}, base::seconds(*peer.silence));
  out.counter("peers_refused_total", "Connections to peers that were closed because of an invalid message.");
  out.sample({}, metrics.refused);
  out.counter("strangers_turned_away_total", "Connections that failed to authenticate as part of this cluster.");
  out.sample({}, metrics.turned_away);
}

void write_uses(Exposition& out, const Metrics& metrics, uint64_t table::Used::Of::*what) {
  for (const Metrics::OwnTable& table : metrics.own)
    for (size_t use = 0; use < table::kUseNames.size(); ++use)
      for (size_t path = 0; path < table::kPathNames.size(); ++path) {
        const table::Used::Of& of = table.used.by[use][path];
        if (of.calls > 0) out.sample({{"table", table.name}, {"call", table::kUseNames[use]}, {"path", table::kPathNames[path]}}, of.*what);
      }
}

void write_tables(Exposition& out, const Metrics& metrics) {
  out.counter("table_calls_total", "Calls of this process on a table; path: local (its own part), mapped (a server's memory, shared or by UCX), message.");
  write_uses(out, metrics, &table::Used::Of::calls);
  out.counter("table_call_bytes_total", "Bytes of the values of these calls.");
  write_uses(out, metrics, &table::Used::Of::bytes);
  out.counter("table_compressed_bytes_total", "Bytes of this process's compressed adds; form: values (before compression), sent (after it).");
  for (const Metrics::OwnTable& table : metrics.own) {
    if (table.used.encoded_to == 0) continue;
    out.sample({{"table", table.name}, {"form", "values"}}, table.used.encoded_from);
    out.sample({{"table", table.name}, {"form", "sent"}}, table.used.encoded_to);
  }
  out.histogram("call_seconds", "Duration of this process's calls that took messages, except fire-and-forget calls.");
  for (size_t use = 0; use < table::kUseNames.size(); ++use)
    if (metrics.calls[use].count() > 0) out.sample({{"call", table::kUseNames[use]}}, metrics.calls[use]);
  out.gauge("table_stored_rows", "Rows, elements or keys that this server stores.");
  for (const auto& table : metrics.held) out.sample({{"table", table.name}}, table.usage.stored);
  out.gauge("table_memory_bytes", "Memory used by this server's part of a table: values with indexes, or the updater's states.");
  for (const auto& table : metrics.held) {
    out.sample({{"table", table.name}, {"part", "values"}}, table.usage.memory_bytes - table.usage.state_bytes);
    out.sample({{"table", table.name}, {"part", "states"}}, table.usage.state_bytes);
  }
  out.gauge("table_spilled_bytes", "Of table_memory_bytes of a table on a device: what is in the host's memory, because the device has no more.");
  for (const auto& table : metrics.held)
    if (table.usage.host_bytes > 0) out.sample({{"table", table.name}}, table.usage.host_bytes);
}

void write_requests(Exposition& out, const Metrics& metrics) {
  out.counter("requests_total", "Requests that this process has started to serve, by kind.");
  for (size_t kind = 0; kind < metrics.started.size(); ++kind)
    if (metrics.started[kind] > 0) out.sample({{"kind", wire::EnumNameBody(static_cast<wire::Body>(kind))}}, metrics.started[kind]);
  out.counter("requests_repeated_total", "Requests of this process that were sent again.");
  out.sample({}, metrics.repeated);
  out.counter("requests_duplicate_total", "Requests received more than once, and executed only once.");
  out.sample({}, metrics.duplicates);
  out.gauge("requests_gated", "Requests that wait here for their turn: sync or merged mode, staleness.");
  out.sample({}, metrics.gated);
  out.histogram("gate_wait_seconds", "Time that requests waited here for their turn.");
  out.sample({{"request", "change"}}, metrics.held_changes);
  out.sample({{"request", "get"}}, metrics.held_gets);
}

void write_checkpoints(Exposition& out, const Metrics& metrics) {
  out.counter("checkpoint_files_total", "Checkpoint files that this server has written or failed to write.");
  out.sample({{"result", "ok"}}, metrics.checkpoints.files);
  out.sample({{"result", "failed"}}, metrics.checkpoints.failed);
  out.gauge("checkpoint_last_seconds", "Time that writing the last checkpoint file took.");
  out.sample({}, base::seconds(metrics.checkpoints.last_took));
  out.gauge("checkpoint_last_bytes", "Size of the last checkpoint file.");
  out.sample({}, metrics.checkpoints.last_bytes);
}

/// What Prometheus's own client libraries report about a process, under the same names.
void write_process(Exposition& out) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; };
  out.process("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
  out.sample({}, of(used.ru_utime) + of(used.ru_stime));
  unsigned long virtual_pages = 0, resident_pages = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "re")) {
    const bool read = std::fscanf(statm, "%lu %lu", &virtual_pages, &resident_pages) == 2;
    std::fclose(statm);
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (read) {
      out.process("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.");
      out.sample({}, virtual_pages * page);
      out.process("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
      out.sample({}, resident_pages * page);
    }
  }
  uint64_t open = 0;
  if (DIR* const folder = opendir("/proc/self/fd")) {
    while (const dirent* const entry = readdir(folder)) open += entry->d_name[0] != '.' ? 1 : 0;
    closedir(folder);
  }
  rlimit limit{};
  if (open > 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    out.process("process_open_fds", "gauge", "Number of open file descriptors.");
    out.sample({}, open);
    out.process("process_max_fds", "gauge", "Maximum number of open file descriptors.");
    out.sample({}, static_cast<uint64_t>(limit.rlim_cur));
  }
}

}  // namespace

std::string to_prometheus(const Metrics& metrics) {
  Exposition out;
  write_node(out, metrics);
  write_peers(out, metrics);
  write_tables(out, metrics);
  write_requests(out, metrics);
  write_checkpoints(out, metrics);
  write_process(out);
  return out.take();
}

}  // namespace mv::runtime
