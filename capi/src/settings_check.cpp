// Checks for settings that are valid one by one but not together.

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "api/group/kept_tuning.hpp"
#include "engine/collective/cost_text.hpp"
#include "runtime/keeper/address.hpp"
#include "launcher_readers.hpp"
#include "settings.hpp"

namespace mv::capi {

base::Status check_tls(const runtime::Settings& settings) {
  const std::pair<const char*, const std::string*> files[] = {
      {"tls_cert", &settings.tls_cert}, {"tls_key", &settings.tls_key}, {"tls_ca", &settings.tls_ca}};
  const bool mutual = settings.tls == "mutual";
  for (const auto& [key, file] : files) {
    if (mutual && file->empty())
      return base::error(MV_EINVAL, "tls=mutual needs {}: set tls_cert, tls_key and tls_ca (POLYVERSO_TLS_CERT, ...) to files", key);
    if (!mutual && !file->empty())
      return base::error(MV_EINVAL, "{}={} has no effect with tls={}: set tls=mutual (POLYVERSO_TLS)", key, *file, settings.tls);
  }
  return {};
}

namespace {

struct Address {
  std::string_view host;
  std::optional<int> port;
};

/// "host", "host:port", "[v6]:port"; nothing for anything else.
std::optional<Address> split_address(std::string_view text) {
  Address address;
  size_t colon = std::string_view::npos;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    address.host = text.substr(1, close - 1);
    if (close + 1 < text.size()) {
      if (text[close + 1] != ':') return std::nullopt;
      colon = close + 1;
    }
  } else {
    colon = text.find(':');
    // More than one colon and no brackets: a bare IPv6 host.
    if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos)
      colon = std::string_view::npos;
    address.host = text.substr(0, colon);
  }
  if (address.host.empty()) return std::nullopt;
  if (colon == std::string_view::npos) return address;
  const std::string_view digits = text.substr(colon + 1);
  int port = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failure != std::errc() || end != digits.data() + digits.size() || port < 0 || port > 65'535) return std::nullopt;
  address.port = port;
  return address;
}

base::Status needs_secret(const char* key, const std::string& value) {
  return base::error(
      MV_EINVAL,
      "{}={} reaches beyond this machine's loopback and needs a secret: set secret (POLYVERSO_SECRET) to the same "
      "text in all processes",
      key, value);
}

/// A keeper by which the processes are to find each other.
base::Status check_keeper(const runtime::Settings& settings) {
  if (settings.keeper.empty()) return {};
  const auto address = runtime::keeper::parse_address(settings.keeper);
  if (!address.ok()) return address.status();
  const size_t colon = settings.keeper_auth.find(':');
  if (!settings.keeper_auth.empty() && (colon == std::string::npos || colon == 0))
    return base::Status(MV_EINVAL, "keeper_auth=(secret) is not USER:PASSWORD");
  // With a master, the nodes of a process may have etcd decide about their members.
  const bool only_views = !settings.master.empty() && address.value().kind == runtime::keeper::Address::Kind::kEtcd;
  if (settings.transport == "inproc" && settings.nodes > 1 && !only_views)
    return base::error(MV_EINVAL, "transport=inproc needs master=NAME, and no such keeper: keeper={} is for processes that listen at an address", settings.keeper);
  return {};
}

base::Status check_addresses(const runtime::Settings& settings) {
  const auto bind = split_address(settings.bind), advertise = split_address(settings.advertise);
  if (!bind) return base::error(MV_EINVAL, "bind={} is neither \"host\" nor \"host:port\"", settings.bind);
  if (!settings.advertise.empty() && !advertise)
    return base::error(MV_EINVAL, "advertise={} is neither \"host\" nor \"host:port\"", settings.advertise);
  if (settings.meets_by_keeper()) {
    const bool open = settings.secret.empty() && settings.tls != "mutual" && !is_loopback_host(bind->host);
    return open ? needs_secret("bind", settings.bind) : base::Status();
  }
  if (settings.master.empty()) return {};  // rank 0 publishes its address, and makes a secret
  bool is_open = false;
  for (size_t from = 0; from <= settings.master.size();) {  // members of a cluster that may run already; the others name one only
    const size_t end = std::min(settings.master.find(',', from), settings.master.size());
    const auto master = split_address(std::string_view(settings.master).substr(from, end - from));
    if (!master || !master->port || *master->port == 0)
      return base::error(MV_EINVAL, "master={} is not \"host:port\" with a port in 1 .. 65535, nor several of these with commas between them", settings.master);
    is_open = is_open || !is_loopback_host(master->host);
    from = end + 1;
  }
  if (!settings.secret.empty() || settings.tls == "mutual") return {};
  if (!is_loopback_host(bind->host)) return needs_secret("bind", settings.bind);
  return is_open ? needs_secret("master", settings.master) : base::Status();
}

/// UCX does not encrypt.
base::Status check_transport(const runtime::Settings& settings) {
  if (settings.transport != "ucx" || settings.tls == "off") return {};
  constexpr const char* kTodo = "set tls=off (POLYVERSO_TLS) if the network is closed or encrypted already, or leave transport (POLYVERSO_TRANSPORT) unset";
  if (settings.tls != "auto")
    return base::error(MV_EINVAL, "transport=ucx does not encrypt, and tls={} demands it: {}", settings.tls, kTodo);
  for (const auto& [key, value] : {std::pair("bind", &settings.bind), std::pair("master", &settings.master), std::pair("advertise", &settings.advertise)}) {
    const auto address = split_address(*value);
    if (address && !is_loopback_host(address->host))
      return base::error(MV_EINVAL, "transport=ucx does not encrypt, and {}={} is beyond this machine's loopback: {}", key, *value, kTodo);
  }
  return {};
}

/// MPI does not encrypt. Whether its job spans machines is known once it is opened: see runtime::open_mpi().
base::Status check_mpi(const runtime::Settings& settings) {
  if (settings.tls == "auto" || settings.tls == "off") return {};
  const bool by_transport = settings.transport == "mpi";
  return base::error(MV_EINVAL,
                     "{}=mpi does not encrypt, and tls={} demands it: set tls=off (POLYVERSO_TLS) if the network of the MPI job is closed or encrypted "
                     "already, or leave {} (POLYVERSO_{}) unset",
                     by_transport ? "transport" : "collective", settings.tls, by_transport ? "transport" : "collective", by_transport ? "TRANSPORT" : "COLLECTIVE");
}

base::Status check_costs(const std::string& text) {
  const auto costs = collective::read_costs(text);
  return costs.ok() ? base::Status() : base::error(MV_EINVAL, "collective_costs=\"{}\": {}", text, costs.status().text());
}

}  // namespace

base::Status check_cluster(const runtime::Settings& settings) {
  if (auto status = check_costs(settings.collective_costs); !status.ok()) return status;
  if (auto status = api::check_tuning(settings.tuning); !status.ok()) return status;
  if (auto status = check_tls(settings); !status.ok()) return status;
  if (auto status = check_keeper(settings); !status.ok()) return status;
  for (const auto& [key, most] : {std::pair("max_servers", settings.max_servers), std::pair("max_workers", settings.max_workers)})
    if (most > 0 && (settings.nodes == 1 || settings.transport == "mpi"))
      return base::error(MV_EINVAL, "{}={} is for clusters that can grow: {}", key, most,
                         settings.nodes == 1 ? "nodes=1 has no address that others could join at" : "an MPI job can't");
  // A process that joins later has a rank after those of the first processes.
  if (settings.rank >= settings.nodes + std::max<int64_t>(0, settings.max_servers - 1) + std::max<int64_t>(0, settings.max_workers - 1)) {
    return base::error(MV_EINVAL, "rank={} does not fit nodes={}: ranks go from 0 to {}", settings.rank, settings.nodes,
                       settings.nodes - 1);
  }
  if (settings.role == runtime::kRoleScheduler && settings.rank != 0)
    return base::error(MV_EINVAL, "role=scheduler is only for the master, rank=0");
  const bool by_mpi = settings.transport == "mpi" && !(settings.nodes_said && settings.nodes == 1);
  if (by_mpi) return check_mpi(settings);
  if (settings.nodes == 1) {
    if (settings.role == MV_ROLE_ALL) return {};
    return base::error(MV_EINVAL,
                       "role={} in a cluster of one (nodes=1): its process must be worker and server, role=all",
                       settings.role == MV_ROLE_WORKER ? "worker" : settings.role == MV_ROLE_SERVER ? "server" : "scheduler");
  }
  if (settings.collective == "mpi" && settings.transport != "inproc")
    if (auto status = check_mpi(settings); !status.ok()) return status;
  if (settings.master.empty() && settings.rendezvous.empty() && settings.keeper.empty()) {
    return base::error(
        MV_EINVAL,
        "nodes={} needs master=host:port (POLYVERSO_MASTER), rank 0's address, or keeper=etcd://HOST:2379/NAME; or start the "
        "processes with \"polyverso run -n {}\"",
        settings.nodes, settings.nodes);
  }
  if (settings.transport == "inproc") return {};
  if (auto status = check_addresses(settings); !status.ok()) return status;
  return check_transport(settings);
}

}  // namespace mv::capi
