#include "run/plan.hpp"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include <fmt/core.h>

namespace mv::tools {
namespace {

constexpr std::string_view kPrefix = "POLYVERSO_";

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

/// 32 random bytes in hexadecimal.
std::string make_secret() {
  std::array<unsigned char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) fail("getrandom");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string variable(std::string_view setting) {
  std::string name(kPrefix);
  for (const char c : setting) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// The launcher's own environment's.
std::string value_of(std::string_view setting) {
  const char* value = std::getenv(variable(setting).c_str());
  return value != nullptr ? value : "";
}

/// A process of another run started this one. The keeper in its environment has the name of that run's cluster.
bool is_inside_another_run() { return !value_of("master").empty() && !value_of("rank").empty(); }

using Environment = std::map<std::string, std::string>;

/// The launcher's own environment, without a place in some other run.
Environment inherited_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const char* own : {"exits", "launcher", "listen_fd", "master", "max_servers", "max_workers", "nodes", "rank", "rendezvous", "resizes", "role", "secret"})
    environment.erase(variable(own));
  if (is_inside_another_run()) environment.erase(variable("keeper"));
  return environment;
}

std::vector<std::string> flat(const Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [key, value] : environment) entries.push_back(fmt::format("{}={}", key, value));
  return entries;
}

}  // namespace

MasterSocket open_master_socket() {
  MasterSocket socket{.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (socket.fd < 0) fail("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const int on = 1;
  // Rank 0 may listen there again, in a second mv_init(), while connections of the first one are still ending: those inherit the option. Not
  // before bind(), which may then choose a port that others use.
  if (bind(socket.fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      setsockopt(socket.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || listen(socket.fd, SOMAXCONN) != 0 ||
      getsockname(socket.fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail("listening on 127.0.0.1");
  }
  socket.port = ntohs(address.sin_port);
  return socket;
}

namespace {
/// By --set or the environment, as the processes read it.
std::string said(const RunOptions& options, const std::string& setting) {
  const auto set = options.settings.find(setting);
  return set != options.settings.end() ? set->second : value_of(setting);
}

int replicas_of(const RunOptions& options) { return options.replicas > 0 ? options.replicas : std::atoi(said(options, "replicas").c_str()); }

/// Other commands use the files from other folders.
std::map<std::string, std::string> tls_of(const RunOptions& options) {
  std::map<std::string, std::string> tls;
  for (const char* const key : kTlsSettings) {
    const std::string value = said(options, key);
    if (!value.empty()) tls[key] = key == std::string_view("tls") ? value : std::filesystem::absolute(value).string();
  }
  return tls;
}
}  // namespace

Meeting meeting_at(int port, std::string exits, std::string resizes, const RunOptions& options) {
  const auto set = options.settings.find("keeper");
  const bool is_named = set != options.settings.end() ? !set->second.empty() : !value_of("keeper").empty() && !is_inside_another_run();
  return {fmt::format("127.0.0.1:{}", port), is_named ? value_of("secret") : make_secret(), std::move(exits), std::move(resizes),
          options.workers + options.servers, replicas_of(options), tls_of(options)};
}

namespace {

/// Among all servers, as the cluster counts: without servers at the start, all workers are servers, too.
int number_of_server(const RunOptions& options, int rank) { return options.servers > 0 ? rank - options.workers : rank; }

/// What all processes of a run are told.
Environment common_environment(const RunOptions& options, const Meeting& meeting) {
  Environment common = inherited_environment();
  for (const auto& [key, value] : options.settings) common[variable(key)] = value;
  if (options.sync) common[variable("sync")] = "1";
  if (meeting.replicas > 0) common[variable("replicas")] = std::to_string(meeting.replicas);
  if (!common.contains(variable("tls")))
    for (const auto& [key, value] : meeting.tls) common.emplace(variable(key), value);
  common[variable("master")] = meeting.master;
  common[variable("nodes")] = std::to_string(meeting.nodes);
  if (!meeting.secret.empty()) common[variable("secret")] = meeting.secret;
  if (!meeting.exits.empty()) common[variable("exits")] = meeting.exits;
  if (options.max_servers > 0) common[variable("max_servers")] = std::to_string(options.max_servers);
  if (options.max_workers > 0) common[variable("max_workers")] = std::to_string(options.max_workers);
  if (options.max_servers > 0 && !meeting.resizes.empty()) common[variable("resizes")] = meeting.resizes;
  common.emplace("PYTHONUNBUFFERED", "1");  // Python holds back whole pages of output when it writes to a pipe
  return common;
}

Process plan_process(const RunOptions& options, Environment environment, const std::string& self, int rank) {
  Process process;
  process.rank = rank;
  process.server = rank >= options.workers;
  process.id = process.server ? number_of_server(options, rank) : rank;
  process.label = fmt::format("{}{}", process.server ? 's' : 'w', process.id);
  process.name = fmt::format("{} {}", process.server ? "server" : "worker", process.id);
  environment[variable("rank")] = std::to_string(rank);
  if (options.metrics >= 0) environment[variable("metrics")] = std::to_string(options.metrics > 0 ? options.metrics + rank : 0);
  if (rank == 0) environment[variable("listen_fd")] = std::to_string(kMasterSocketFd);
  if (process.server) {
    process.command = options.server_command.empty() ? Command{self, "server"} : options.server_command;
    environment[variable("role")] = "server";
  } else {
    process.command = options.commands.size() == 1 ? options.commands[0] : options.commands[static_cast<size_t>(process.id)];
    environment[variable("role")] = options.servers > 0 ? "worker" : "all";
  }
  process.environment = flat(environment);
  return process;
}

}  // namespace

std::vector<Process> plan(const RunOptions& options, const Meeting& meeting, const std::string& self) {
  const Environment common = common_environment(options, meeting);
  std::vector<Process> processes;
  for (int rank = 0; rank < options.workers + options.servers; ++rank) processes.push_back(plan_process(options, common, self, rank));
  return processes;
}

std::vector<Process> plan_joining(const RunOptions& options, const Meeting& meeting) {
  const Environment common = common_environment(options, meeting);
  std::vector<Process> processes;
  for (int number = 0; number < options.workers; ++number) {
    // As that of a run without servers, where workers come first; but the cluster gives the ranks.
    Process process = plan_process(options, common, "", number);
    Environment environment = common;
    environment[variable("role")] = "worker";
    // As members of a cluster that runs: if it has ended meanwhile, none of these takes the master's address for itself.
    environment[variable("master")] = fmt::format("{0},{0}", meeting.master);
    if (options.metrics >= 0) environment[variable("metrics")] = std::to_string(options.metrics > 0 ? options.metrics + number : 0);
    process.environment = flat(environment);
    process.label = fmt::format("+{}", number);
    process.name = options.workers > 1 ? fmt::format("added worker +{}", number) : "added worker";
    process.rank = -1;  // the cluster gives it
    processes.push_back(std::move(process));
  }
  return processes;
}

Process plan_added_server(const RunOptions& options, const Meeting& meeting, const std::string& self, int rank) {
  Environment environment = common_environment(options, meeting);
  environment.erase(variable("exits"));  // processes may have ended by now, and the cluster is complete
  Process process = plan_process(options, std::move(environment), self, rank);
  process.added = true;
  return process;
}

}  // namespace mv::tools
