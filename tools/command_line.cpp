#include "command_line.hpp"

#include <polyverso/polyverso.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "words.hpp"

namespace mv::tools {
namespace {

constexpr const char* kFooter = R"(examples:
  polyverso run -n 4 -- python3 train.py        four processes, each a worker and a server
  polyverso help run                            all about it
)";

constexpr const char* kRunUsage =
    "polyverso run [-n N] [-s M] [OPTIONS] -- COMMAND [ARGS...] [--- COMMAND [ARGS...]]...";

constexpr const char* kRunHelp = "Starts workers, and optionally servers, on this machine, and waits for them to end";

constexpr const char* kRunFooter = R"(examples:
  polyverso run -n 4 -- python3 train.py --epochs 10
      four processes, each a worker and a server
  polyverso run -n 4 --servers 2 --sync -- lua train.lua
      four workers and two servers, in sync mode
  polyverso run -n 4 -s 2 --server-command "python3 server.py" -- python3 train.py
      two servers that run a program of their own, which calls init() and shutdown()
  polyverso run --servers 1 -- perl train.pl --- python3 train.py --- luajit train.lua
      three workers in three languages on one cluster
  polyverso run -n 2 --servers 1 --max-workers 8 -- python3 train.py
  polyverso run --join -n 2 -- python3 train.py
      two more workers for your only run, while it trains: docs/failures.md
  polyverso run -n 2 --set heartbeat_timeout_ms=2000 --set log_level=debug -- ./train

When a process fails, the others are ended two seconds later, which gives them time to report their own errors; the last line names
the cause, and how it ended: a process that a signal killed, or else the first failure, apart from those that report the loss of
another process. Further failures with a reason of their own follow. With --keep-going the others continue.
Output is printed in whole lines, with the prefix [w0] for worker 0 and [s1] for server 1. Standard input goes to worker 0, unless it
is a terminal. Ctrl-C is passed on to the workers, and the last line names those that it stopped; what Python and Lua print about the
interruption is left out, unless --verbose is given. A second Ctrl-C kills all processes. No process outlives the launcher.
The exit status is 0, or that of the process that the last line names (128 + signal if one killed it). With --replicas, the end of a
server does not count if all workers end with 0. The status is 1 instead of 0 if some output could not be written, as on a full disk.
Processes get their place in the cluster from POLYVERSO_MASTER, _NODES, _RANK, _ROLE, _SYNC and _SECRET, which mv_init() reads.
With POLYVERSO_KEEPER or --set keeper=..., the cluster also has a name, by which `polyverso status` and new servers find it; the secret
is then the one in POLYVERSO_SECRET, or else none, for processes of the same user: docs/launchers.md.)";

constexpr const char* kServerHelp = "Holds shards of a cluster's tables until all workers have finished";

constexpr const char* kServerFooter = R"(examples:
  polyverso server --master 10.0.0.1:7000 --nodes 5 --bind 10.0.0.2 --secret-file ~/.polyverso-secret
  POLYVERSO_LOG_LEVEL=info polyverso server --master 127.0.0.1:7000 --nodes 3

Settings that are not given come from the environment: POLYVERSO_MASTER, POLYVERSO_NODES, POLYVERSO_SECRET, and so on.
A secret is needed beyond loopback, where TCP is encrypted unless tls=off is set: docs/security.md.
At SIGTERM, the server hands its tables over to other servers, and ends with status 0: nothing is lost, and workers' calls only take
longer. Rank 0, the master, also makes another server the master. If there is no other server, or after --grace seconds, the server
says so and ends as by SIGTERM. A second SIGTERM, or SIGINT, ends it at once.
)";

constexpr const char* kScaleFooter = R"(examples:
  polyverso scale --servers 4                      your only run on this machine
  polyverso scale 4711 --servers 1                 the run whose `polyverso run` has this process id
  polyverso scale --master 10.0.0.1:7000 --secret-file ~/.polyverso-secret --servers 2

The cluster must have been started with room for them: polyverso run --max-servers, or the setting max_servers of rank 0. Workers
continue; their calls only take longer. With fewer servers than now, those with the highest ranks hand their tables over and end.
With more, `polyverso run` starts the missing ones; in other clusters, start `polyverso server` with the settings of the others.
Prints the number of servers at each change, and ends when no part of the tables moves any more. The exit status is 0 then, else 1.
)";

constexpr const char* kInspectFooter = R"(examples:
  polyverso checkpoint inspect /data/run7                      its newest complete checkpoint
  polyverso checkpoint inspect /data/run7/checkpoint-000012    this one
  polyverso checkpoint inspect --json checkpoint-000012/server-0.safetensors | jq .tables

All data is read and its checksums are verified. The exit status is 0 if it is sound, 1 if it is damaged or missing.
)";

constexpr const char* kCheckpointFooter = R"(examples:
  polyverso checkpoint inspect /data/run7                      what its newest checkpoint contains, and whether it is sound
  polyverso checkpoint inspect --help                          all about it
)";

constexpr const char* kDoctorHelp = "Explains the detected settings, what works, and how to solve problems";

constexpr const char* kDoctorFooter = R"(examples:
  polyverso doctor                                    this machine, and what mv_init() would take from the environment
  mpirun -np 2 polyverso doctor                       the settings that each process gets from a launcher
  polyverso run -n 2 -- polyverso doctor --join       two processes join, and report the transport between them
  polyverso doctor --master node1:7000 --secret-file ~/.polyverso-secret
                                                      whether a cluster's master can be reached: name, connection, hello, secret
  polyverso doctor --json | jq '.findings[] | select(.verdict != "ok")'
  polyverso doctor --tune                             what messages cost here: two workers, three times, a few seconds each
  mpirun -np 8 polyverso doctor --tune                the same between the processes of a launcher, on their machines
  polyverso doctor --tune -o costs.sh && . ./costs.sh
                                                      groups opened later choose algorithms by these costs: docs/allreduce.md

Every line is ok, a note (it works, but may not be intended) or a problem; for notes and problems, -> says what to do.
The exit status is 0 if there is no problem, else 1. docs/operations.md describes the fields of the JSON.
)";

constexpr const char* kStatusFooter = R"(examples:
  polyverso status                                 your runs on this machine
  polyverso status 4711                            the run whose `polyverso run` has this process id
  polyverso status --master 10.0.0.1:7000 --secret-file ~/.polyverso-secret
  polyverso status --gossip nodes.yaml             the gossiping nodes of this configuration
  polyverso status --watch                         repeatedly, until Ctrl-C
  polyverso status --log 3                         the last lines of the log of the process of rank 3
  polyverso status --json | jq '.waits[]'          for programs; docs/operations.md describes the fields

It queries the cluster without joining it, and no process waits for it. Any member can be asked by its address. POLYVERSO_MASTER
and POLYVERSO_SECRET in the environment also name a cluster.
)";

constexpr const char* kDashboardFooter = R"(examples:
  polyverso dashboard                              your only run on this machine
  polyverso dashboard 4711                         the run whose `polyverso run` has this process id
  polyverso dashboard --master 10.0.0.1:7000 --secret-file ~/.polyverso-secret
  polyverso dashboard --gossip nodes.yaml          the gossiping nodes of this configuration
  ssh -L 8000:127.0.0.1:8000 node1 polyverso dashboard --port 8000
                                                   from another machine, through ssh's encryption

It prints a link for a browser on this machine, and serves the page until Ctrl-C. The link's token lets a browser in. The page shows
which process waits for which, the members, tables and groups, and charts of the last hour, which it keeps in bounded memory. It
contacts no other host.
)";

constexpr const char* kExportFooter = R"(examples:
  polyverso run -n 4 --metrics 9100 -- python3 train.py
  polyverso export --otlp http://localhost:4318             of that run, if it is your only one on this machine, every 10 s
  polyverso export --otlp http://localhost:4318 --once --http 9100 --http 9101

Prometheus needs no export: it reads the processes' /metrics itself.
)";

constexpr const char* kTraceFooter = R"(examples:
  polyverso run -n 4 --metrics 9100 -- python3 train.py     each rank serves its metrics and trace: 9100, 9101, 9102, 9103
  polyverso trace --seconds 2 -o trace.json                 of that run, if it is your only one on this machine
  polyverso trace --master 10.0.0.1:7000 --secret-file ~/.polyverso-secret -o trace.json
  polyverso trace --http 9100 --http 9101 -o trace.json     of these two processes
  polyverso trace --explain                                 where the time goes: compute, waits and for whom, transfer, apply

Processes with the metrics setting keep their last 16,384 events (trace_events) and serve them. Open the file at
https://ui.perfetto.dev or chrome://tracing: a process is a rank, a track is a peer and direction, arrows are messages.
)";

/// Accepts whole numbers in this range.
CLI::Validator whole(int64_t least, int64_t most) {
  const auto check = [least, most](const std::string& text) {
    int64_t value = 0;
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool fits = wrong == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
    return fits ? std::string() : fmt::format("\"{}\" is not a whole number in {} .. {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

/// Accepts numbers of seconds in this range. Unlike CLI::Range it refuses NaN.
CLI::Validator number_of_seconds(double least, double most) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return fits ? std::string() : fmt::format("\"{}\" is not a number of seconds in {} .. {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

/// What CLI11 can't know by itself: that a command follows.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return app->get_name() == "run" ? fmt::format("Usage: {}\n", kRunUsage)
                                    : CLI::Formatter::make_usage(app, std::move(name));
  }
};

Command server_command(const std::string& text) {
  Command command = shell_words(text);
  if (command.empty()) throw UsageError{"--server-command: no command given"};
  return command;
}

void describe_run(CLI::App& run, RunOptions& options, std::vector<std::string>& settings) {
  run.add_option("-n,--workers", options.workers_wished, "Number of workers (default: the number of commands)")
      ->type_name("N")
      ->check(whole(1, kMostProcesses));
  run.add_option("-s,--servers", options.servers, "Number of additional processes that are only servers (default: 0, every worker is also a server)")
      ->type_name("M")
      ->check(whole(0, kMostProcesses));
  run.add_option("--max-servers", options.max_servers, "Room for this many servers, for `polyverso scale` (default: no room for more)")->type_name("M")->check(whole(0, 65535));
  run.add_option("--max-workers", options.max_workers, "Room for this many workers, for --join (default: no room for more)")->type_name("N")->check(whole(0, 65535));
  run.add_option("--join", options.joins, "Add the workers to a run that has room for them: your only one, or the one with this process id")
      ->type_name("PID")
      ->expected(0, 1)
      ->default_str("0")
      ->check(whole(0, INT32_MAX));
  run.add_option_function<std::string>("--server-command", [&options](const std::string& text) { options.server_command = server_command(text); },
                                       "The servers' program and its arguments, as one quoted word (default: polyverso server)")
      ->type_name("COMMAND");
  run.add_flag("--sync", options.sync, "Sync mode: the same get gives all workers the same bits");
  run.add_option("--replicas", options.replicas, "Number of other servers that keep a copy of each server's tables, and take over if it dies (default: 0). "
                                                 "Implies --keep-going")
      ->type_name("R")
      ->check(whole(0, 15));
  run.add_option("--tls", options.tls, "Encryption over TCP: off, auto, psk or mutual, as --set tls=MODE (default: auto, which is psk beyond loopback)")
      ->type_name("MODE")
      ->check(CLI::IsMember({"off", "auto", "psk", "mutual"}));
  run.add_option("--set", settings, "A setting for all processes, as in mv_init_text()")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  run.add_flag_callback(
      "--no-color", [&options] { options.color = false; },
      "No colours (default if NO_COLOR is set, or without a terminal)");
  run.add_option("--metrics", options.metrics, "Metrics over HTTP on loopback: rank r at PORT + r; 0: any free ports, which are logged")
      ->type_name("PORT")
      ->check(whole(0, 65535));
  run.add_option("--dashboard", options.dashboard, "Show the state in a browser: start `polyverso dashboard`, and print its link (default: any free port)")
      ->type_name("PORT")
      ->expected(0, 1)
      ->default_str("0")
      ->check(whole(0, 65535));
  run.add_flag("--keep-going", options.keep_going, "Do not end the other processes when one fails, for programs that continue after mv_group_shrink()");
  run.add_flag("-v,--verbose", options.verbose, "Print which processes are started, and how each ends");
  run.footer(kRunFooter);
}

void describe_server(CLI::App& server, ServerOptions& options) {
  server.add_option("--master", options.master, "Where rank 0 listens")->type_name("HOST:PORT");
  server.add_option("--nodes", options.nodes, "Processes in the cluster, servers included")->type_name("N");
  server.add_option("--rank", options.rank, "This process's rank (default: assigned by the master)")->type_name("R");
  server.add_option("--bind", options.bind, "Where to listen (default: loopback, any port)")->type_name("HOST[:PORT]");
  server.add_option("--secret-file", options.secret_file, "A file whose first line is the cluster's secret")
      ->type_name("FILE");
  server.add_option("--metrics", options.metrics, "Metrics over HTTP; on loopback if no host is given (default: none)")->type_name("[HOST:]PORT");
  server.add_option("--grace", options.grace, "How long after SIGTERM other servers may take to get its tables; 0: end at once (default: 30)")
      ->type_name("SECONDS")
      ->check(number_of_seconds(0, 86400));
  server.add_option("--set", options.settings, "A setting, as in mv_init_text()")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  server.footer(kServerFooter);
}

void describe_checkpoint(CLI::App& checkpoint, InspectOptions& options) {
  checkpoint.require_subcommand(1);
  checkpoint.footer(kCheckpointFooter);
  CLI::App& inspect = *checkpoint.add_subcommand("inspect", "Shows what a checkpoint contains, and whether it is sound");
  inspect.add_option("path", options.path, "A checkpoint, a directory of them, or one of their files")->type_name("FILE|DIR")->required();
  inspect.add_flag("--json", options.json, "Print JSON, for programs");
  inspect.footer(kInspectFooter);
}

void describe_doctor(CLI::App& doctor, DoctorOptions& options) {
  doctor.add_flag("--json", options.json, "Print JSON, for programs");
  CLI::Option* tune = doctor.add_flag("--tune", options.tune, "Measure what messages cost, for the choice of collective algorithms: between the workers of a launcher, else between workers started for it");
  doctor.add_option("--workers", options.workers, "Number of workers started for --tune (default: 2)")->type_name("N")->needs(tune)->check(whole(2, 64));
  doctor.add_option("-o,--output", options.output, "With --tune: write the line that sets the costs to a file, for a shell's `.`")->type_name("FILE")->needs(tune);
  doctor.add_option("--report", options.report)->group("")->needs(tune);
  CLI::Option* join = doctor.add_flag("--join", options.join, "Join the cluster with all its processes, and examine the connections to them")->excludes(tune);
  doctor.add_option("--master", options.master, "Examine only the connection to this master, and ignore the environment's cluster")
      ->type_name("HOST:PORT")
      ->excludes(join)
      ->excludes(tune);
  doctor.add_option("--secret-file", options.secret_file, "A file whose first line is the cluster's secret")->type_name("FILE");
  doctor.add_option("--set", options.settings, "A setting, as POLYVERSO_<KEY> in the environment")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  doctor.footer(kDoctorFooter);
}

/// A process id: CLI11's own words about a number that is none are those of a programmer.
std::string check_pid(const std::string& word) {
  const bool digits = !word.empty() && word.size() < 10 && word.find_first_not_of("0123456789") == std::string::npos;
  return digits && word.find_first_not_of('0') != std::string::npos ? "" : fmt::format("\"{}\" is not the process id of a `polyverso run`", word);
}

/// The ways to name a cluster. `all`: without any, the command is about all runs; else about the only one. `others`: name something else to ask,
/// so that one of them would be ignored.
void describe_cluster(CLI::App& command, ClusterChoice& choice, bool all, const std::vector<CLI::Option*>& others) {
  const char* const unnamed = all ? "all your runs" : "your only run";
  CLI::Option* run = command.add_option("run", choice.run, fmt::format("The process id of a `polyverso run` (default: {})", unnamed))
                         ->type_name("PID")
                         ->check(CLI::Validator(check_pid, ""));
  CLI::Option* master = command.add_option("--master", choice.master, "Where rank 0 of a cluster listens")->type_name("HOST:PORT")->excludes(run);
  CLI::Option* secret = command.add_option("--secret-file", choice.secret_file, "A file whose first line is that cluster's secret")
                            ->type_name("FILE")
                            ->excludes(run);
  for (CLI::Option* other : others) other->excludes(run)->excludes(master)->excludes(secret);
}

CLI::Option* add_http(CLI::App& command, std::vector<std::string>& http) {
  return command.add_option("--http", http, "Where a process serves its metrics; repeat for each process (default: ask the cluster)")
      ->type_name("[HOST:]PORT")
      ->allow_extra_args(false);
}

void describe_status(CLI::App& status, StatusOptions& options) {
  CLI::Option* gossip =
      status.add_option("--gossip", options.gossip, "A YAML file with gossip nodes: query all of them instead of a cluster")->type_name("FILE");
  describe_cluster(status, options.cluster, true, {gossip});
  status.add_flag("--json", options.json, "Print JSON, for programs");
  status.add_option_function<int64_t>("--log", [&options](const int64_t& rank) { options.log_of = rank; },
                                      "Show only the last lines of the log of this process")
      ->type_name("RANK")
      ->check(whole(0, UINT32_MAX))
      ->excludes(gossip);
  status.add_option_function<double>("--watch", [&options](const double& seconds) { options.watch = seconds; }, "Repeat at this interval (default: 2 s)")
      ->type_name("SECONDS")
      ->expected(0, 1)
      ->default_str("2")
      ->check(number_of_seconds(0.1, 86400));
  status.footer(kStatusFooter);
}

void describe_dashboard(CLI::App& dashboard, DashboardOptions& options) {
  CLI::Option* gossip =
      dashboard.add_option("--gossip", options.gossip, "A YAML file with gossip nodes: show all of them instead of a cluster")->type_name("FILE");
  describe_cluster(dashboard, options.cluster, false, {gossip});
  dashboard.add_option("--port", options.port, "Where to listen (default: any free port)")->type_name("PORT")->check(whole(0, 65535));
  dashboard.add_option("--bind", options.bind, "The address to listen at (default: loopback)")->type_name("HOST");
  dashboard.add_option("--from", options.from)->group("");
  dashboard.footer(kDashboardFooter);
}

void describe_trace(CLI::App& trace, TraceOptions& options) {
  CLI::Option* http = add_http(trace, options.http);
  describe_cluster(trace, options.cluster, false, {http});
  trace.add_option("-o,--output", options.output, "The file to write (default: standard output)")->type_name("FILE");
  trace.add_option("--seconds", options.seconds, "Only the last N seconds (default: all kept events)")->type_name("N")->check([](const std::string& word) {
    double seconds = 0;
    return CLI::detail::lexical_cast(word, seconds) && seconds > 0 ? std::string() : word + " is not a number of seconds above 0";
  });
  trace.add_flag("--explain", options.explain, "Print where the workers' time goes, and what to do; a file only with -o");
  trace.footer(kTraceFooter);
}

void describe_export(CLI::App& command, ExportOptions& options) {
  command.add_option("--otlp", options.otlp, "The OpenTelemetry collector that gets them, by OTLP over HTTP in JSON")->type_name("URL")->required();
  command.add_option("--header", options.headers, "A header for the collector, such as 'Authorization: Bearer ...'; repeat for more")
      ->type_name("'NAME: VALUE'")
      ->allow_extra_args(false);
  CLI::Option* http = add_http(command, options.http);
  describe_cluster(command, options.cluster, false, {http});
  command.add_option("--interval", options.interval, "Seconds between two requests (default: 10)")->type_name("SECONDS")->check(number_of_seconds(0.1, 86400));
  command.add_flag("--once", options.once, "Send once and end");
  command.footer(kExportFooter);
}

void describe_scale(CLI::App& scale, ScaleOptions& options) {
  describe_cluster(scale, options.cluster, false, {});
  scale.add_option("-s,--servers", options.servers, "The wanted number of servers")->type_name("M")->required()->check(whole(1, 65535));
  scale.add_option("--timeout", options.timeout, "How long to wait until it has them; 0: only ask the master (default: 60)")
      ->type_name("SECONDS")
      ->check(number_of_seconds(0, 86400));
  scale.footer(kScaleFooter);
}

using Commands = std::vector<std::pair<const CLI::App*, CommandLine::Which>>;

Commands add_commands(CLI::App& app, CommandLine& read, std::vector<std::string>& settings) {
  using Which = CommandLine::Which;
  Commands commands;
  const auto add = [&](Which which, const char* name, const char* help) -> CLI::App& {
    CLI::App& command = *app.add_subcommand(name, help);
    commands.emplace_back(&command, which);
    return command;
  };
  describe_run(add(Which::kRun, "run", kRunHelp), read.run, settings);
  describe_server(add(Which::kServer, "server", kServerHelp), read.server);
  describe_checkpoint(add(Which::kInspect, "checkpoint", "Examines checkpoints that mv_checkpoint_save() saved"), read.inspect);
  describe_trace(add(Which::kTrace, "trace", "Writes a trace of the latest events of a cluster's processes, for Perfetto or Chrome"), read.trace);
  describe_doctor(add(Which::kDoctor, "doctor", kDoctorHelp), read.doctor);
  describe_status(add(Which::kStatus, "status", "Shows the state of a running cluster: its members, and which process waits for which"), read.status);
  describe_scale(add(Which::kScale, "scale", "Changes the number of a running cluster's servers"), read.scaled);
  describe_dashboard(add(Which::kDashboard, "dashboard", "Shows the state of a running cluster in a browser: which process waits for which, and charts"), read.dashboard);
  describe_export(add(Which::kExport, "export", "Sends a running cluster's metrics to an OpenTelemetry collector"), read.exported);
  app.add_subcommand("help", "Shows the help of a command");
  return commands;
}

}  // namespace

CommandLine read_command_line(const std::vector<std::string>& words) {
  CommandLine read;
  CLI::App app("Polyverso: model parameters shared between processes, in any language.", "polyverso");
  app.set_version_flag("--version", fmt::format("polyverso {}", mv_version_text()));
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.footer(kFooter);
  std::vector<std::string> settings;
  const Commands commands = add_commands(app, read, settings);
  const Words split = split_words(words);
  std::vector<std::string> own = checked(app, split);
  std::ranges::reverse(own);  // as CLI11 wants them
  try {
    app.parse(std::move(own));
  } catch (const CLI::ExcludesError& error) {
    throw UsageError{fmt::format("{}: give only one of them", error.what())};
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    if (!asked) throw UsageError{error.what()};
    std::ostringstream text;
    app.exit(error, text, text);
    read.text = text.str();
    return read;
  }
  for (const auto& [command, which] : commands)
    if (command->parsed()) read.which = which;
  if (read.which == CommandLine::Which::kRun) {
    read.run.commands = split_commands(split.command);
    read.run.settings = parse_settings(settings);
    if (!read.run.tls.empty()) read.run.settings["tls"] = read.run.tls;
    check(read.run);
  }
  return read;
}

}  // namespace mv::tools
