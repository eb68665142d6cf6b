// Launchers that span machines: Slurm, and DMLC's trackers.

#include <algorithm>

#include "launcher_readers.hpp"

namespace mv::capi {
namespace {

constexpr size_t kMostHosts = 65'536;
constexpr size_t kLongestHost = 255;
/// Batch scripts, interactive shells and the like have step numbers from here on.
constexpr int64_t kFirstPseudoStep = 0xffff'fff0;

/// Cuts at commas outside of brackets.
base::Result<std::vector<std::string_view>> split_hosts(std::string_view list) {
  std::vector<std::string_view> items;
  size_t begin = 0, depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[') ++depth;
    if (c == ']' && depth-- == 0)
      return base::error(MV_EINVAL, "\"{}\" is not a list of hosts: \"]\" without \"[\"", list);
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    if (i == begin) return base::error(MV_EINVAL, "\"{}\" is not a list of hosts: an empty name", list);
    items.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  if (depth != 0) return base::error(MV_EINVAL, "\"{}\" is not a list of hosts: a \"[\" is never closed", list);
  return items;
}

std::optional<uint64_t> digits(std::string_view text) {
  uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

base::Status is_too_long(std::string_view list) {
  return base::error(MV_EINVAL, "\"{}\": a host name has more than {} characters", list.substr(0, kLongestHost), kLongestHost);
}

/// "01-03,7" as "01", "02", "03", "7". The first number's width counts.
base::Result<std::vector<std::string>> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> numbers;
  while (true) {
    const size_t comma = ranges.find(',');
    const std::string_view range = ranges.substr(0, comma);
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash),
                           high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    const auto first = digits(low), last = digits(high);
    if (!first || !last || *first > *last)
      return base::error(MV_EINVAL, "\"{}\" is not a list of hosts: \"{}\" is not a range of numbers", list, range);
    if (*last - *first >= kMostHosts - numbers.size())
      return base::error(MV_EINVAL, "\"{}\" names more than {} hosts", list, kMostHosts);
    if (low.size() > kLongestHost) return is_too_long(list);
    for (uint64_t i = 0; i <= *last - *first; ++i) numbers.push_back(fmt::format("{:0{}}", *first + i, low.size()));
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

/// The first of the ports that srun has reserved; else one above the kernel's ephemeral ports, derived from the job's
/// number.
base::Result<Found> slurm_port(const Variables& variables, const Found& job, const Found& step) {
  if (const auto reserved = variables.find("SLURM_STEP_RESV_PORTS")) {
    const auto port = digits(std::string_view(reserved->value).substr(0, reserved->value.find_first_of("-,")));
    if (!port || *port < 1 || *port > 65'535)
      return base::error(MV_EINVAL, "{} does not begin with a port", reserved->from);
    return Found{std::to_string(*port), reserved->from};
  }
  constexpr uint64_t kFirst = 61'000, kPorts = 4'000;
  const auto number = digits(job.value), part = digits(step.value);
  if (!number || !part) return base::error(MV_EINVAL, "{} and {} are not both numbers", job.from, step.from);
  return Found{std::to_string(kFirst + (*number % kPorts * 7 + *part % kPorts) % kPorts),
               fmt::format("{} {}", job.from, step.from)};
}

/// On several machines, rank 0 is on the first.
base::Status meet_across_machines(const Variables& variables, const Found& job, const Found& step, Assignment& place) {
  const auto list = variables.find({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) {
    place.missing =
        "Slurm's SLURM_JOB_NODELIST is not set, so rank 0's machine is unknown: set POLYVERSO_MASTER=host:port";
    return {};
  }
  const auto hosts = expand_hosts(list->value);
  if (!hosts.ok()) return base::error(MV_EINVAL, "{}: {}", list->from, hosts.status().text());
  const auto port = slurm_port(variables, job, step);
  if (!port.ok()) return port.status();
  const std::string& first = hosts.value().front();
  place.master =
      Found{fmt::format("{}:{}", first, port.value().value), fmt::format("{} {}", list->from, port.value().from)};
  if (!is_loopback_host(first)) place.bind = any_interface(first, list->from);
  return {};
}

}  // namespace

base::Result<std::vector<std::string>> expand_hosts(std::string_view list) {
  const auto items = split_hosts(list);
  if (!items.ok()) return items.status();
  std::vector<std::string> hosts;
  for (std::string_view item : items.value()) {
    std::vector<std::string> names{""};
    while (!item.empty()) {
      const size_t open = item.find('['), close = item.find(']');
      if (names.front().size() + item.substr(0, open).size() > kLongestHost) return is_too_long(list);
      for (std::string& name : names) name += item.substr(0, open);
      if (open == std::string_view::npos) break;
      const auto numbers = expand_ranges(item.substr(open + 1, close - open - 1), list);
      if (!numbers.ok()) return numbers.status();
      if (names.size() * numbers.value().size() > kMostHosts)
        return base::error(MV_EINVAL, "\"{}\" names more than {} hosts", list, kMostHosts);
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& number : numbers.value()) longer.push_back(name + number);
      names = std::move(longer);
      item.remove_prefix(close + 1);
    }
    if (hosts.size() + names.size() > kMostHosts)
      return base::error(MV_EINVAL, "\"{}\" names more than {} hosts", list, kMostHosts);
    hosts.insert(hosts.end(), names.begin(), names.end());
  }
  return hosts;
}

/// The processes of a job step, started by srun. A batch script itself also has most of the variables, but is one
/// process.
Reading read_slurm(const Variables& variables, std::vector<std::string>& notes) {
  Assignment place;
  place.launcher = "Slurm";
  place.rank = variables.find("SLURM_PROCID");
  place.nodes = variables.find({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  const auto alone = [&] {
    if (number_of(place.nodes).value_or(1) > 1)
      notes.push_back(
          fmt::format("{}, but this process was not started by srun: it is a cluster of one process", place.nodes->from));
    return std::optional<Assignment>();
  };
  if (!place.rank) return alone();
  const auto job = variables.find({"SLURM_JOB_ID", "SLURM_JOBID"}),
             step = variables.find({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (!step || number_of(step).value_or(0) >= kFirstPseudoStep) return alone();
  if (!place.nodes || !job) {
    return base::error(MV_EINVAL,
                       "{} is set, but {} is not: this looks like srun, but does not tell {}; set "
                       "POLYVERSO_LAUNCHER=none for a cluster of one",
                       place.rank->from, place.nodes ? "SLURM_JOB_ID" : "SLURM_NTASKS",
                       place.nodes ? "which job it is" : "how many tasks there are");
  }
  const auto machines = number_of(variables.find({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}));
  if (machines == 1 || number_of(place.nodes) == 1) {
    const auto restart = variables.find("SLURM_RESTART_COUNT");
    place.rendezvous = Found{fmt::format("slurm.{}.{}.{}", job->value, step->value, restart ? restart->value : "0"),
                             fmt::format("{} {}", job->from, step->from)};
    return std::optional(place);
  }
  if (const auto status = meet_across_machines(variables, *job, *step, place); !status.ok()) return status;
  return std::optional(place);
}

/// ps-lite's variables. The scheduler listens at the root's address; ranks are assigned in the order of arrival.
Reading read_dmlc(const Variables& variables) {
  const auto role = variables.find("DMLC_ROLE");
  const auto root = variables.find("DMLC_PS_ROOT_URI");
  if (!role && !root) return std::optional<Assignment>();
  if (!role)
    return base::error(MV_EINVAL,
                       "{} is set, but DMLC_ROLE is not: a DMLC tracker sets both; set POLYVERSO_LAUNCHER=none for a cluster of one",
                       root->from);
  for (const char* name : {"DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"}) {
    if (variables.find(name)) continue;
    return base::error(
        MV_EINVAL,
        "{} is set, but {} is not: a DMLC tracker sets both; set POLYVERSO_LAUNCHER=none for a cluster of one",
        role->from, name);
  }
  const auto uri = *root, port = *variables.find("DMLC_PS_ROOT_PORT");
  const auto workers = *variables.find("DMLC_NUM_WORKER"), servers = *variables.find("DMLC_NUM_SERVER");
  Assignment place;
  place.launcher = "DMLC";
  place.sets_roles = true;
  if (role->value != "scheduler" && role->value != "server" && role->value != "worker")
    return base::error(MV_EINVAL, "{} is not scheduler, server or worker", role->from);
  const auto worker_count = digits(workers.value), server_count = digits(servers.value), number = digits(port.value);
  if (!worker_count || *worker_count < 1 || *worker_count > kMostHosts)
    return base::error(MV_EINVAL, "{} is not a number of workers", workers.from);
  if (!server_count || *server_count < 1 || *server_count > kMostHosts)
    return base::error(MV_EINVAL, "{} is not a number of servers", servers.from);
  if (!number || *number < 1 || *number > 65'535)
    return base::error(MV_EINVAL, "{} is not a port in 1 .. 65535", port.from);
  place.role = role;
  if (role->value == "scheduler") place.rank = Found{"0", role->from};
  place.nodes = Found{std::to_string(1 + *worker_count + *server_count),
                      fmt::format("{} {} and a scheduler", workers.from, servers.from)};
  place.master =
      Found{join_address(uri.value, static_cast<int64_t>(*number)), fmt::format("{} {}", uri.from, port.from)};
  if (const auto host = variables.find("DMLC_NODE_HOST")) {
    place.bind = place.advertise = host;
  } else if (const auto interface = variables.find("DMLC_INTERFACE")) {
    place.bind = interface;
  } else if (!is_loopback_host(uri.value)) {
    place.bind = any_interface(uri.value, uri.from);
  }
  return std::optional(place);
}

}  // namespace mv::capi
