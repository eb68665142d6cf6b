#include "settings.hpp"

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <type_traits>

#include "base/log.hpp"
#include "launcher.hpp"
#include "options.hpp"
#include "runtime/keeper/rendezvous.hpp"

namespace mv::capi {
namespace {

using base::SettingChoice;
using base::SettingInfo;
using base::SettingType;
using base::SettingValue;

/// The values that the table sets: the node's settings, and those that do not concern a node.
struct Start : runtime::Settings {
  int32_t log_level = MV_LOG_WARN;
  std::string launcher = "auto";
};

struct Setting {
  SettingInfo info;
  std::optional<SettingValue> (*option)(const mv_init_options&);  ///< the struct's field; nothing if it is unset
  SettingValue (*load)(const Start&);
  void (*store)(Start&, const SettingValue&);
};

SettingValue value_of(const std::string& text) { return {0, text}; }
SettingValue value_of(const char* text) { return {0, text}; }
SettingValue value_of(base::Nanos span) {
  return {span == base::kNever ? MV_FOREVER : std::chrono::duration_cast<std::chrono::milliseconds>(span).count(), {}};
}
template <typename T>
requires std::is_arithmetic_v<T> SettingValue value_of(T number) {
  return {std::cmp_greater(number, INT64_MAX) ? INT64_MAX : static_cast<int64_t>(number), {}};
}
SettingValue value_of(bool flag) { return {flag ? 1 : 0, {}}; }

void assign(std::string& to, const SettingValue& value) { to = value.text; }
void assign(base::Nanos& to, const SettingValue& value) { to = span_of_ms(value.number); }
template <typename T>
requires std::is_arithmetic_v<T>
void assign(T& to, const SettingValue& value) { to = static_cast<T>(value.number); }

/// `Unset` is the value that MV_INIT_OPTIONS_INIT writes into the field.
template <auto Member, auto Option, auto Unset>
constexpr Setting from_options(SettingInfo info) {
  return {info,
          [](const mv_init_options& options) -> std::optional<SettingValue> {
            if (options.*Option == Unset) return std::nullopt;
            return value_of(options.*Option);
          },
          [](const Start& start) { return value_of(start.*Member); },
          [](Start& start, const SettingValue& value) { assign(start.*Member, value); }};
}
template <auto Member>
constexpr Setting without_option(SettingInfo info) {
  return {info, nullptr, [](const Start& start) { return value_of(start.*Member); },
          [](Start& start, const SettingValue& value) { assign(start.*Member, value); }};
}

// Multiverso's "default" is worker and server at once.
constexpr SettingChoice kRoles[] = {
    {"worker", MV_ROLE_WORKER}, {"server", MV_ROLE_SERVER}, {"all", MV_ROLE_ALL}, {"default", MV_ROLE_ALL},
    {"scheduler", runtime::kRoleScheduler}};
constexpr SettingChoice kTlsModes[] = {{"auto", 0}, {"off", 1}, {"psk", 2}, {"mutual", 3}};
constexpr SettingChoice kTransports[] = {{"auto", 0}, {"shm", 1}, {"tcp", 2}, {"ucx", 3}, {"mpi", 4}, {"inproc", 5}};
constexpr SettingChoice kCollectives[] = {{"auto", 0}, {"own", 1}, {"mpi", 2}, {"nccl", 3}};
constexpr auto kLaunchers = [] {
  std::array<SettingChoice, std::size(kLauncherWords)> choices{};
  for (size_t i = 0; i < choices.size(); ++i) choices[i] = {kLauncherWords[i], static_cast<int64_t>(i)};
  return choices;
}();
constexpr SettingChoice kLevels[] = {{"trace", MV_LOG_TRACE}, {"debug", MV_LOG_DEBUG}, {"info", MV_LOG_INFO},
                                     {"warn", MV_LOG_WARN},   {"error", MV_LOG_ERROR}, {"off", MV_LOG_OFF}};

using Options = mv_init_options;
constexpr int64_t kMostNodes = 65'535;
/// Each more is one more hop for a change.
constexpr int64_t kMostReplicas = 15;
constexpr int64_t kMostTraceEvents = 16 << 20;

/// The list of settings. Defaults are those of runtime::Settings.
constexpr Setting kSettings[] = {
    from_options<&Start::sync, &Options::sync, MV_UNSET>(
        {.key = "sync", .type = SettingType::kBool, .help = "sync mode; unset: as the other processes"}),
    from_options<&Start::role, &Options::role, MV_ROLE_UNSET>(
        {.key = "role", .type = SettingType::kChoice, .help = "role of this process", .choices = kRoles, .alias = "ps_role"}),
    from_options<&Start::rank, &Options::rank, MV_UNSET>(
        {.key = "rank",
         .type = SettingType::kInteger,
         .help = "number in the cluster; -1 or unset: in order of arrival",
         .least = 0,
         .most = kMostNodes - 1}),
    from_options<&Start::nodes, &Options::nodes, 0>({.key = "nodes",
                                                     .type = SettingType::kInteger,
                                                     .help = "processes in the cluster, servers included",
                                                     .least = 1,
                                                     .most = kMostNodes}),
    from_options<&Start::replicas, &Options::replicas, MV_UNSET>(
        {.key = "replicas",
         .type = SettingType::kInteger,
         .help = "number of other servers that keep a copy of each server's tables, and take over if it dies",
         .least = 0,
         .most = kMostReplicas}),
    without_option<&Start::max_servers>({.key = "max_servers",
                                         .type = SettingType::kInteger,
                                         .help = "servers to which the cluster can grow; 0: those that it begins with. Rank 0's value counts",
                                         .least = 0,
                                         .most = kMostNodes}),
    without_option<&Start::max_workers>({.key = "max_workers",
                                         .type = SettingType::kInteger,
                                         .help = "workers to which the cluster can grow; 0: those that it begins with. Rank 0's value counts",
                                         .least = 0,
                                         .most = kMostNodes}),
    from_options<&Start::master, &Options::master, nullptr>(
        {.key = "master", .type = SettingType::kText, .help = "host:port where rank 0 listens and the others connect"}),
    without_option<&Start::keeper>({.key = "keeper",
                                    .type = SettingType::kText,
                                    .help = "where the cluster has a name, by which processes without a master find it: etcd://HOST:2379/NAME or file:///FOLDER/NAME"}),
    without_option<&Start::keeper_auth>({.key = "keeper_auth", .type = SettingType::kSecret, .help = "USER:PASSWORD at the keeper, if it wants one"}),
    from_options<&Start::bind, &Options::bind, nullptr>(
        {.key = "bind", .type = SettingType::kText, .help = "host, host:port or network interface to listen on"}),
    from_options<&Start::advertise, &Options::advertise, nullptr>(
        {.key = "advertise", .type = SettingType::kText, .help = "host or host:port that peers connect to; unset: the address it listens on"}),
    from_options<&Start::secret, &Options::secret, nullptr>(
        {.key = "secret", .type = SettingType::kSecret, .help = "same text in all processes; needed beyond loopback"}),
    from_options<&Start::transport, &Options::transport, nullptr>(
        {.key = "transport", .type = SettingType::kText, .help = "which transports may be used", .choices = kTransports, .alias = "io"}),
    without_option<&Start::tls>({.key = "tls",
                                 .type = SettingType::kText,
                                 .help = "encryption over TCP: by the secret, by certificates; auto: psk beyond loopback",
                                 .choices = kTlsModes}),
    without_option<&Start::tls_cert>({.key = "tls_cert", .type = SettingType::kText, .help = "file with this node's certificate, for tls=mutual"}),
    without_option<&Start::tls_key>({.key = "tls_key", .type = SettingType::kText, .help = "file with the private key of tls_cert"}),
    without_option<&Start::tls_ca>({.key = "tls_ca", .type = SettingType::kText, .help = "file with the certificates that sign the peers'"}),
    from_options<&Start::faults, &Options::faults, nullptr>(
        {.key = "faults", .type = SettingType::kText, .help = "for tests: faults injected into messages"}),
    from_options<&Start::timeout, &Options::timeout_ms, 0>(
        {.key = "timeout_ms", .type = SettingType::kMillis, .help = "limit for one request to one server"}),
    from_options<&Start::gate_timeout, &Options::gate_timeout_ms, 0>(
        {.key = "gate_timeout_ms",
         .type = SettingType::kMillis,
         .help = "limit for barriers, creation of tables, sync mode's gets and adds"}),
    from_options<&Start::init_timeout, &Options::init_timeout_ms, 0>(
        {.key = "init_timeout_ms", .type = SettingType::kMillis, .help = "limit for all processes to join"}),
    from_options<&Start::heartbeat_timeout, &Options::heartbeat_timeout_ms, 0>(
        {.key = "heartbeat_timeout_ms",
         .type = SettingType::kMillis,
         .help = "silence after which a peer counts as lost"}),
    without_option<&Start::stuck_after>(
        {.key = "stuck_after_ms", .type = SettingType::kMillis, .help = "a round, barrier or creation that waits longer is logged"}),
    from_options<&Start::inflight_bytes, &Options::inflight_bytes, 0>(
        {.key = "inflight_bytes",
         .type = SettingType::kBytes,
         .help = "limit on the payload of unfinished asynchronous adds",
         .least = 1}),
    from_options<&Start::spin_us, &Options::spin_us, MV_UNSET>({.key = "spin_us",
                                                                .type = SettingType::kInteger,
                                                                .help = "microseconds that a wait spins before it sleeps",
                                                                .least = 0,
                                                                .most = 50}),
    from_options<&Start::checkpoint, &Options::checkpoint, nullptr>(
        {.key = "checkpoint", .type = SettingType::kText, .help = "directory for periodic checkpoints"}),
    from_options<&Start::checkpoint_every, &Options::checkpoint_every_ms, 0>(
        {.key = "checkpoint_every_ms", .type = SettingType::kMillis, .help = "time between periodic checkpoints"}),
    from_options<&Start::checkpoint_keep, &Options::checkpoint_keep, 0>(
        {.key = "checkpoint_keep", .type = SettingType::kInteger, .help = "number of checkpoints to keep", .least = 1}),
    from_options<&Start::metrics, &Options::metrics, nullptr>(
        {.key = "metrics", .type = SettingType::kText, .help = "port or host:port of the HTTP server for metrics and traces"}),
    without_option<&Start::trace_events>(
        {.key = "trace_events", .type = SettingType::kInteger, .help = "events kept for traces; unset: 16384 with metrics, else 0", .least = 0, .most = kMostTraceEvents}),
    without_option<&Start::collective_costs>(
        {.key = "collective_costs", .type = SettingType::kText, .help = "costs by which groups choose algorithms, \"shm=ALPHA,BETA tcp=... reduce=GAMMA\" in seconds"}),
    without_option<&Start::collective>({.key = "collective",
                                        .type = SettingType::kText,
                                        .help = "the implementation of groups' all-reduces: this library's, NCCL's between devices, or in an MPI job MPI's",
                                        .choices = kCollectives}),
    without_option<&Start::tuning>(
        {.key = "tuning", .type = SettingType::kText, .help = "how all-reduces in shared memory choose their algorithm: auto, trial, fixed, or the name of an algorithm"}),
    without_option<&Start::log_level>({.key = "log_level",
                                       .type = SettingType::kChoice,
                                       .help = "lowest level that is logged to standard error",
                                       .choices = kLevels}),
    without_option<&Start::launcher>({.key = "launcher",
                                      .type = SettingType::kText,
                                      .help = "launcher whose variables give this process its rank and cluster",
                                      .choices = kLaunchers}),
    without_option<&Start::rendezvous>({.key = "rendezvous",
                                        .type = SettingType::kText,
                                        .help = "name under which rank 0 publishes its address on this machine",
                                        .environment_only = true}),
    without_option<&Start::listen_fd>({.key = "listen_fd",
                                       .type = SettingType::kInteger,
                                       .help = "the master's socket, which is already listening",
                                       .least = 0,
                                       .most = INT32_MAX,
                                       .environment_only = true}),
    without_option<&Start::exits>({.key = "exits",
                                   .type = SettingType::kText,
                                   .help = "file in which the launcher reports processes that have ended",
                                   .environment_only = true}),
    without_option<&Start::resizes>({.key = "resizes",
                                     .type = SettingType::kText,
                                     .help = "pipe through which the launcher learns how many servers are wanted",
                                     .environment_only = true}),
};
constexpr size_t kCount = std::size(kSettings);

constexpr auto kKnown = [] {
  std::array<const SettingInfo*, kCount> known{};
  for (size_t i = 0; i < kCount; ++i) known[i] = &kSettings[i].info;
  return known;
}();

constexpr size_t index_of(std::string_view key) {
  size_t i = 0;
  while (key != kSettings[i].info.key) ++i;
  return i;
}
constexpr size_t kSync = index_of("sync"), kNodes = index_of("nodes"), kMaster = index_of("master"),
                 kRank = index_of("rank"), kRole = index_of("role"), kListenFd = index_of("listen_fd"),
                 kLogLevel = index_of("log_level"), kBind = index_of("bind"), kAdvertise = index_of("advertise"),
                 kSecret = index_of("secret"), kInitTimeout = index_of("init_timeout_ms"),
                 kLauncher = index_of("launcher"), kRendezvous = index_of("rendezvous"),
                 kExits = index_of("exits"), kKeeper = index_of("keeper"), kKeeperAuth = index_of("keeper_auth"),
                 kTls = index_of("tls"), kTlsCert = index_of("tls_cert"), kTlsKey = index_of("tls_key"), kTlsCa = index_of("tls_ca");

std::atomic<bool> log_level_chosen{false};

/// Unless the program has chosen another one.
void take_log_level(const base::SaidSettings& environment) {
  const auto* wish = environment.find(kLogLevel);
  if (wish != nullptr && !log_level_chosen.load(std::memory_order_relaxed)) base::set_log_level(static_cast<int>(wish->value.number));
}

/// Whether the explicit settings describe another cluster than the environment does. The environment's place in its own
/// cluster is then ignored: a script that `polyverso run` started may still open a cluster of its own.
bool leaves_cluster(const base::SaidSettings& said, const base::SaidSettings& environment) {
  const auto* nodes = said.find(kNodes);
  if (nodes != nullptr && nodes->value.number == 1) return true;
  const auto *master = said.find(kMaster), *their_master = environment.find(kMaster);
  return master != nullptr && their_master != nullptr && master->value != their_master->value;
}
bool belongs_to_cluster(size_t index) {
  return index == kRank || index == kRole || index == kMaster || index == kKeeper || index == kListenFd || index == kExits;
}
/// Whether a cluster of another size than the environment's is meant: the launcher's processes need not all join it.
bool resizes_cluster(const base::SaidSettings& said, const base::SaidSettings& environment) {
  const auto *nodes = said.find(kNodes), *their_nodes = environment.find(kNodes);
  return nodes != nullptr && their_nodes != nullptr && nodes->value != their_nodes->value;
}

/// The values of all sources: first the caller, then the environment, then a launcher.
class Sources {
 public:
  Sources(const base::SaidSettings& said, const base::SaidSettings& environment)
      : said_(said), environment_(environment), launched_(kKnown), alone_(leaves_cluster(said, environment)), resized_(resizes_cluster(said, environment)) {}

  /// Reads the launcher's variables, unless the place of this process is known without them.
  base::Status ask_launcher(SettingsReport& report);
  /// The effective value; null for the default.
  const base::SaidSettings::Said* find(size_t index) const;
  SettingUse use_of(size_t index) const;
  /// Whether the launcher assigned rank 0 to another process.
  bool joins_only() const { return joins_only_; }
  /// Why a launcher did not determine the master's address.
  const std::string& missing() const { return missing_; }

 private:
  const base::SaidSettings::Said* own(size_t index) const;
  base::Status take(const Assignment& place, SettingsReport& report);

  const base::SaidSettings &said_, &environment_;
  base::SaidSettings launched_;
  const bool alone_, resized_;
  bool joins_only_ = false;
  std::string missing_;
};

/// The caller's value, else the environment's, unless that belongs to another cluster.
const base::SaidSettings::Said* Sources::own(size_t index) const {
  const auto* said = said_.find(index);
  const bool foreign = (alone_ && belongs_to_cluster(index)) || (resized_ && index == kExits);
  return said != nullptr || foreign ? said : environment_.find(index);
}

const base::SaidSettings::Said* Sources::find(size_t index) const {
  const auto* own_one = own(index);
  if (index == kRendezvous && (own(kMaster) != nullptr || own(kKeeper) != nullptr)) return nullptr;  // no rendezvous is needed
  if (index == kMaster && own(kMaster) == nullptr && own(kKeeper) != nullptr) return nullptr;          // a launcher's guess
  return own_one != nullptr ? own_one : launched_.find(index);
}

SettingUse Sources::use_of(size_t index) const {
  using Source = SettingUse::Source;
  const SettingInfo& info = kSettings[index].info;
  const auto* counts = find(index);
  SettingUse use;
  use.key = info.key;
  use.value = base::show_setting(info, counts != nullptr ? counts->value : kSettings[index].load(Start{}));
  if (counts != nullptr) {
    use.from = counts->where;
    use.source = counts == said_.find(index) ? Source::kExplicit : counts == environment_.find(index) ? Source::kEnvironment : Source::kLauncher;
  }
  for (const base::SaidSettings* source : {&environment_, &launched_}) {
    const auto* other = source->find(index);
    if (other == nullptr || other == counts) continue;
    if (counts == nullptr && index == kRendezvous)
      use.unused.push_back(fmt::format("{} is not used: {}", other->where,
                                       own(kMaster) != nullptr ? "the master's address is known" : "the processes meet by the keeper"));
    else if (counts == nullptr)
      use.unused.push_back(fmt::format("{} belongs to another cluster: it is not used", other->where));
    else if (counts->value != other->value)
      use.unused.push_back(fmt::format("{} overrides {}", counts->where, other->where));
  }
  return use;
}

base::Status Sources::ask_launcher(SettingsReport& report) {
  const auto* wish = own(kLauncher);
  const auto *nodes = own(kNodes), *master = own(kMaster), *rank = own(kRank);
  if (nodes != nullptr && (nodes->value.number == 1 || (wish == nullptr && master != nullptr && rank != nullptr))) return {};
  const Environment environment = [](const char* variable) -> const char* { return std::getenv(variable); };
  const std::string_view which = wish != nullptr ? std::string_view(wish->value.text) : "auto";
  auto detected = detect_launcher(which, environment);
  if (!detected.ok()) return detected.status();
  report.seen = detected.value().seen;
  report.warnings = detected.value().notes;
  if (!detected.value().place) return which == "auto" && nodes == nullptr ? refuse_unknown_launchers(environment) : base::Status();
  return take(*detected.value().place, report);
}

base::Status Sources::take(const Assignment& place, SettingsReport& report) {
  const auto* nodes = own(kNodes);
  if (nodes != nullptr && place.nodes && std::to_string(nodes->value.number) != place.nodes->value) {
    report.remarks.push_back(fmt::format("{} means another cluster than {}: {}'s variables are not used", nodes->where,
                                         place.nodes->from, place.launcher));
    return {};
  }
  report.launcher = place.launcher;
  const std::pair<size_t, const std::optional<Found>*> parts[] = {
      {kRank, &place.rank}, {kNodes, &place.nodes},         {kRole, &place.role},           {kMaster, &place.master},
      {kBind, &place.bind}, {kAdvertise, &place.advertise}, {kRendezvous, &place.rendezvous}};
  for (const auto& [index, found] : parts) {
    if (!*found) continue;
    std::string where = fmt::format("{} in the environment", (*found)->from);
    auto value = base::parse_setting(kSettings[index].info, (*found)->value);
    if (!value.ok()) return base::error(MV_EINVAL, "{} {}", where, value.status().text());
    if (auto status = launched_.say(index, std::move(value).value(), std::move(where)); !status.ok()) return status;
  }
  joins_only_ = place.sets_roles && !place.rank && own(kMaster) == nullptr;
  missing_ = place.missing;
  return {};
}

std::string help_text() {
  std::vector<SettingValue> defaults;
  for (const Setting& setting : kSettings) defaults.push_back(setting.load(Start{}));
  return base::explain_settings(kKnown, defaults);
}

}  // namespace

InitRequest::InitRequest(const char* function) : function_(function), explicit_(kKnown) {}

base::Status InitRequest::told(const base::Status& status) const {
  return status.ok() ? status : base::error(status.code(), "{}: {}", function_, status.text());
}

base::Status InitRequest::add_options(const mv_init_options* given) {
  if (given == nullptr) return {};
  auto read = read_struct(function_, "mv_init_options", given, mv_init_options MV_INIT_OPTIONS_INIT, kFirstInitOptions);
  if (!read.ok()) return read.status();
  const mv_init_options& options = read.value();
  for (size_t i = 0; i < kCount; ++i) {
    auto value = kSettings[i].option != nullptr ? kSettings[i].option(options) : std::nullopt;
    if (!value) continue;
    std::string where =
        fmt::format("mv_init_options.{}={}", kSettings[i].info.key, base::show_setting(kSettings[i].info, *value));
    if (auto status = told(explicit_.say(i, std::move(*value), std::move(where))); !status.ok()) return status;
  }
  return options.text == nullptr ? base::Status() : add_text(options.text, "mv_init_options.text");
}

base::Status InitRequest::add_text(std::string_view text, std::string_view source) {
  if (text == "help") return base::error(MV_EINVAL, "{}: the settings are\n{}", function_, help_text());
  return told(explicit_.say_text(text, source));
}

base::Result<std::vector<int>> InitRequest::add_arguments(std::span<const char* const> arguments) {
  auto used = explicit_.say_arguments(arguments);
  if (!used.ok()) return told(used.status());
  return used;
}

base::Result<runtime::Settings> InitRequest::resolve(SettingsReport& report) const {
  base::SaidSettings environment(kKnown);
  if (auto status = told(environment.say_environment("POLYVERSO_")); !status.ok()) return status;
  if (const auto* level = explicit_.find(kLogLevel))
    choose_log_level(static_cast<int32_t>(level->value.number));
  else
    take_log_level(environment);

  runtime::Settings settings;
  const base::Status verdict = weigh(environment, report, settings);
  for (const std::string& warning : report.warnings) base::log_warn("{}", warning);
  for (const std::string& remark : report.remarks) base::log_info("{}", remark);
  for (const SettingUse& use : report.settings)
    for (const std::string& loser : use.unused) base::log_info("{}", loser);
  if (!verdict.ok()) return verdict;
  // `polyverso run --sync` was a wish of the user, who may not know the script. Once, not for each process.
  const auto *sync = explicit_.find(kSync), *wish = environment.find(kSync);
  if (sync != nullptr && wish != nullptr && sync->value != wish->value && settings.rank <= 0 && !leaves_cluster(explicit_, environment))
    base::log_warn("this program's init() sets sync={}, which overrides {}, as of `polyverso run --sync`: the mode is {}", sync->value.number,
                   wish->where, sync->value.number != 0 ? "sync" : "async");
  return settings;
}

base::Status InitRequest::examine(SettingsReport& report, runtime::Settings& settings) const {
  base::SaidSettings environment(kKnown);
  if (auto status = told(environment.say_environment("POLYVERSO_")); !status.ok()) return status;
  return weigh(environment, report, settings);
}

base::Status InitRequest::weigh(const base::SaidSettings& environment, SettingsReport& report, runtime::Settings& settings) const {
  Sources sources(explicit_, environment);
  const base::Status launcher = told(sources.ask_launcher(report));
  Start start;
  for (size_t i = 0; i < kCount; ++i) {
    if (const auto* counts = sources.find(i)) kSettings[i].store(start, counts->value);
    report.settings.push_back(sources.use_of(i));
  }
  start.joins_only = sources.joins_only();
  start.sync_said = sources.find(kSync) != nullptr;
  start.nodes_said = sources.find(kNodes) != nullptr;
  settings = start;
  if (!launcher.ok()) return launcher;
  // Otherwise each of several such processes would silently become a cluster of one.
  for (const size_t index : {kMaster, kRank, kKeeper})
    if (const auto* said = sources.find(index); said != nullptr && sources.find(kNodes) == nullptr)
      return base::error(MV_EINVAL, "{}: {} is set, but nodes is not: set nodes (POLYVERSO_NODES) to the number of processes, or to 1 for a cluster of one",
                         function_, said->where);
  const bool needs_none = !start.rendezvous.empty() || !start.keeper.empty() || start.transport == "mpi";
  if (start.nodes > 1 && start.master.empty() && !needs_none && !sources.missing().empty())
    return base::error(MV_EINVAL, "{}: {}", function_, sources.missing());
  return told(check_cluster(start));
}

base::Result<runtime::Settings> InitRequest::whom_to_ask(base::Nanos patience) const {
  base::SaidSettings environment(kKnown);
  if (auto status = told(environment.say_environment("POLYVERSO_")); !status.ok()) return status;
  Start start;
  start.init_timeout = patience;
  for (const size_t index : {kMaster, kSecret, kInitTimeout, kKeeper, kKeeperAuth, kTls, kTlsCert, kTlsKey, kTlsCa}) {
    const auto* said = explicit_.find(index) != nullptr ? explicit_.find(index) : environment.find(index);
    if (said != nullptr) kSettings[index].store(start, said->value);
  }
  if (auto status = told(check_tls(start)); !status.ok()) return status;
  if (start.master.empty() && start.keeper.empty())
    return base::error(MV_EINVAL, "{}: no cluster is given: set master=HOST:PORT (POLYVERSO_MASTER) to rank 0's address", function_);
  if (start.master.empty()) {
    auto found = runtime::keeper::find_rank_0(start.keeper, start.keeper_auth, start.init_timeout);
    if (!found.ok()) return told(found.status());
    start.master = std::move(found).value();
  }
  return static_cast<runtime::Settings&>(start);
}

base::Status InitRequest::agree_with(const runtime::Settings& running) const {
  Start start;
  static_cast<runtime::Settings&>(start) = running;
  for (size_t i = 0; i < kCount; ++i) {
    const auto* said = explicit_.find(i);
    if (said == nullptr || i == kLogLevel || i == kLauncher) continue;
    const SettingValue now = kSettings[i].load(start);
    if (now == said->value) continue;
    return base::error(MV_EDISAGREE, "{}: {} disagrees with the running node, which has {}={}", function_, said->where,
                       kSettings[i].info.key, base::show_setting(kSettings[i].info, now));
  }
  if (const auto* level = explicit_.find(kLogLevel)) choose_log_level(static_cast<int32_t>(level->value.number));
  return {};
}

base::KnownSettings known_settings() { return kKnown; }

void take_log_level() {
  base::SaidSettings environment(kKnown);
  if (environment.say_environment("POLYVERSO_").ok()) take_log_level(environment);
}

void choose_log_level(int32_t level) noexcept {
  log_level_chosen.store(true, std::memory_order_relaxed);
  base::set_log_level(level);
}

}  // namespace mv::capi
