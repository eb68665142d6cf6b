#include "command_line.hpp"

#include <polyverso/polyverso.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

namespace mv::tools {
namespace {

constexpr const char* kFooter = R"(examples:
  polyverso run -n 4 -- python3 train.py        four processes, each a worker and a server
  polyverso run --help                          all about it
)";

constexpr const char* kRunUsage =
    "polyverso run [-n N] [--servers M] [OPTIONS] -- COMMAND [ARGS...] [--- COMMAND [ARGS...]]...";

constexpr const char* kRunHelp = "Starts workers, and servers if wanted, on this machine, and waits for them";

constexpr const char* kRunFooter = R"(examples:
  polyverso run -n 4 -- python3 train.py --epochs 10
      four processes, each a worker and a server
  polyverso run -n 4 --servers 2 --sync -- lua train.lua
      four workers and two servers, in sync mode
  polyverso run --servers 1 -- perl train.pl --- python3 train.py --- luajit train.lua
      three workers in three languages on one cluster
  polyverso run -n 2 --set heartbeat_timeout_ms=2000 --set log_level=debug -- ./train

The first process that fails ends the others, after two seconds in which they may say by themselves what they miss; the last line says
which one it was, and how it ended. With --keep-going the others go on to their own ends.
Lines are printed whole, with [w0] in front for worker 0 and [s1] for server 1. Standard input goes to worker 0, unless it
is a terminal. Ctrl-C is passed on to the workers; a second one kills. Nothing survives the launcher.
The exit status is 0, or that of the process that failed first (128 + signal if one killed it).
Processes find their place through POLYVERSO_MASTER, _NODES, _RANK, _ROLE, _SYNC and _SECRET, which mv_init() reads.)";

constexpr const char* kServerHelp = "Holds shards of a cluster's tables until all workers have finished";

constexpr const char* kServerFooter = R"(examples:
  polyverso server --master 10.0.0.1:7000 --nodes 5 --bind 10.0.0.2 --secret-file ~/.polyverso-secret
  POLYVERSO_LOG_LEVEL=info polyverso server --master 127.0.0.1:7000 --nodes 3

What is not given comes from the environment: POLYVERSO_MASTER, POLYVERSO_NODES, POLYVERSO_SECRET, and so on.
A secret is needed beyond loopback; it authenticates, it does not encrypt.
)";

constexpr const char* kInspectFooter = R"(examples:
  polyverso checkpoint inspect /data/run7                      its newest whole checkpoint
  polyverso checkpoint inspect /data/run7/checkpoint-000012    this one
  polyverso checkpoint inspect --json checkpoint-000012/server-0.safetensors | jq .tables

Everything is read and compared with its checksums. The exit status is 0 if it is sound, 1 if it is damaged or not there.
)";

constexpr const char* kDoctorHelp = "Explains what was detected here, what works, and what to do about what doesn't";

constexpr const char* kDoctorFooter = R"(examples:
  polyverso doctor                                    this machine, and what mv_init() would take from the environment
  mpirun -np 2 polyverso doctor                       what each process of a launcher is given
  polyverso run -n 2 -- polyverso doctor --join       two processes join, and tell by which transport they reach each other
  polyverso doctor --master node1:7000 --secret-file ~/.polyverso-secret
                                                      whether a cluster's master is reached: name, connection, hello, secret
  polyverso doctor --json | jq '.findings[] | select(.verdict != "ok")'
  polyverso doctor --tune                             what messages cost here: three times two workers, some seconds each
  mpirun -np 8 polyverso doctor --tune                the same between the processes of a launcher, on their machines
  polyverso doctor --tune -o costs.sh && . ./costs.sh
                                                      groups that are opened from now on choose by that: docs/allreduce.md

Every line is ok, a note (it works, but may not be what was meant) or a problem; notes and problems say what to do, behind ->.
The exit status is 0 if there is no problem, else 1. docs/operations.md has the fields of the JSON.
)";

constexpr const char* kStatusFooter = R"(examples:
  polyverso status                                 the runs of yours on this machine
  polyverso status 4711                            the one whose `polyverso run` has this process id
  polyverso status --master 10.0.0.1:7000 --secret-file ~/.polyverso-secret
  polyverso status --gossip nodes.yaml             the gossiping nodes of this configuration
  polyverso status --watch                         again and again, until Ctrl-C
  polyverso status --json | jq '.waits[]'          for programs; docs/operations.md has the fields

It asks and leaves: it is no member of the cluster, and nobody waits for it. Any member may be asked by its address. POLYVERSO_MASTER
and POLYVERSO_SECRET in the environment name a cluster as well.
)";

constexpr const char* kTraceFooter = R"(examples:
  polyverso run -n 4 --metrics 9100 -- python3 train.py     each rank serves its metrics and trace: 9100, 9101, 9102, 9103
  polyverso trace --seconds 2 -o trace.json                 of that run, if it is the only one of yours on this machine
  polyverso trace --master 10.0.0.1:7000 --secret-file ~/.polyverso-secret -o trace.json
  polyverso trace --http 9100 --http 9101 -o trace.json     of these two processes

Processes whose metrics setting is given keep their last 16,384 events (trace_events), and hand them out. Open the file at https://ui.perfetto.dev or chrome://tracing: a process is a rank, a track is a peer and direction, arrows are messages.
)";

/// What CLI11 can't know by itself: that a command follows.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return app->get_name() == "run" ? fmt::format("Usage: {}\n", kRunUsage)
                                    : CLI::Formatter::make_usage(app, std::move(name));
  }
};

void describe_run(CLI::App& run, RunOptions& options, std::vector<std::string>& settings) {
  run.add_option("-n,--workers", options.workers, "How many workers (default: as many as there are commands)")
      ->type_name("N");
  run.add_option("--servers", options.servers, "Further processes that only serve (default: 0, every worker serves)")
      ->type_name("M");
  run.add_flag("--sync", options.sync, "Sync mode: workers receive the same bits at the same get");
  run.add_option("--set", settings, "A setting for all processes, as in mv_init_text()")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  run.add_flag_callback(
      "--no-color", [&options] { options.color = false; },
      "No colours (also: NO_COLOR in the environment, or no terminal)");
  run.add_option("--metrics", options.metrics, "Metrics over HTTP on loopback: rank r at PORT + r; 0: any free ones, which the log tells")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535));
  run.add_flag("--keep-going", options.keep_going, "A process that fails ends no other: the rest goes on, as after mv_group_shrink()");
  run.add_flag("-v,--verbose", options.verbose, "Say which processes are started, and how each ends");
  run.footer(kRunFooter);
}

void describe_server(CLI::App& server, ServerOptions& options) {
  server.add_option("--master", options.master, "Where rank 0 listens")->type_name("HOST:PORT");
  server.add_option("--nodes", options.nodes, "Processes in the cluster, servers included")->type_name("N");
  server.add_option("--rank", options.rank, "This process's rank (default: given out by the master)")->type_name("R");
  server.add_option("--bind", options.bind, "Where to listen (default: loopback, any port)")->type_name("HOST[:PORT]");
  server.add_option("--secret-file", options.secret_file, "A file whose first line is the cluster's secret")
      ->type_name("FILE");
  server.add_option("--metrics", options.metrics, "Metrics over HTTP; without a host on loopback (default: none)")->type_name("[HOST:]PORT");
  server.add_option("--set", options.settings, "A setting, as in mv_init_text()")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  server.footer(kServerFooter);
}

void describe_checkpoint(CLI::App& checkpoint, InspectOptions& options) {
  checkpoint.require_subcommand(1);
  CLI::App& inspect = *checkpoint.add_subcommand("inspect", "Tells what a checkpoint holds, and whether it is sound");
  inspect.add_option("path", options.path, "A checkpoint, a directory of them, or one of their files")->type_name("FILE|DIR")->required();
  inspect.add_flag("--json", options.json, "As JSON, for programs");
  inspect.footer(kInspectFooter);
}

void describe_doctor(CLI::App& doctor, DoctorOptions& options) {
  doctor.add_flag("--json", options.json, "As JSON, for programs");
  CLI::Option* tune = doctor.add_flag("--tune", options.tune, "Measure what messages cost, by which groups choose their algorithms: between the workers of a launcher, or some that are started");
  doctor.add_option("--workers", options.workers, "How many are started for --tune (default: 2)")->type_name("N")->needs(tune)->check(CLI::Range(2, 64));
  doctor.add_option("-o,--output", options.output, "With --tune: a file for the line that sets the costs, for a shell's `.`")->type_name("FILE")->needs(tune);
  doctor.add_option("--report", options.report)->group("")->needs(tune);
  CLI::Option* join = doctor.add_flag("--join", options.join, "Start a node, with all others of its cluster, and examine the ways to them")->excludes(tune);
  doctor.add_option("--master", options.master, "Examine the way to this master, and nothing else of the environment's cluster")
      ->type_name("HOST:PORT")
      ->excludes(join)
      ->excludes(tune);
  doctor.add_option("--secret-file", options.secret_file, "A file whose first line is the cluster's secret")->type_name("FILE");
  doctor.add_option("--set", options.settings, "A setting, as POLYVERSO_<KEY> in the environment")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  doctor.footer(kDoctorFooter);
}

void describe_cluster(CLI::App& command, ClusterChoice& choice) {
  command.add_option("run", choice.run, "The process id of a `polyverso run` (default: those of yours)")->type_name("PID");
  command.add_option("--master", choice.master, "Where rank 0 of a cluster listens")->type_name("HOST:PORT");
  command.add_option("--secret-file", choice.secret_file, "A file whose first line is that cluster's secret")->type_name("FILE");
}

void describe_status(CLI::App& status, StatusOptions& options) {
  describe_cluster(status, options.cluster);
  status.add_option("--gossip", options.gossip, "A YAML file with gossiping nodes: ask all of them, instead of a cluster")->type_name("FILE");
  status.add_flag("--json", options.json, "As JSON, for programs");
  status.add_option_function<double>("--watch", [&options](const double& seconds) { options.watch = seconds; }, "Look again every so often (default: 2 s)")
      ->type_name("SECONDS")
      ->expected(0, 1)
      ->default_str("2")
      ->check(CLI::Range(0.1, 86400.0));
  status.footer(kStatusFooter);
}

void describe_trace(CLI::App& trace, TraceOptions& options) {
  describe_cluster(trace, options.cluster);
  trace.add_option("--http", options.http, "Where a process serves its metrics; once for each (default: the cluster is asked)")
      ->type_name("[HOST:]PORT")
      ->allow_extra_args(false);
  trace.add_option("-o,--output", options.output, "The file to write (default: standard output)")->type_name("FILE");
  trace.add_option("--seconds", options.seconds, "Only the last so many (default: all that is kept)")->type_name("N")->check(CLI::PositiveNumber);
  trace.footer(kTraceFooter);
}

}  // namespace

CommandLine read_command_line(std::vector<std::string> words) {
  CommandLine read;
  CLI::App app("Polyverso: model parameters shared between processes, in any language.", "polyverso");
  app.set_version_flag("--version", fmt::format("polyverso {}", mv_version_text()));
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.footer(kFooter);
  std::vector<std::string> settings;
  CLI::App& run_command = *app.add_subcommand("run", kRunHelp);
  describe_run(run_command, read.run, settings);
  CLI::App& server_command = *app.add_subcommand("server", kServerHelp);
  describe_server(server_command, read.server);
  CLI::App& checkpoint_command = *app.add_subcommand("checkpoint", "Looks at what mv_checkpoint_save() has saved");
  describe_checkpoint(checkpoint_command, read.inspect);
  CLI::App& trace_command = *app.add_subcommand("trace", "Writes what the processes of a cluster did last, for Perfetto or Chrome");
  describe_trace(trace_command, read.trace);
  CLI::App& doctor_command = *app.add_subcommand("doctor", kDoctorHelp);
  describe_doctor(doctor_command, read.doctor);
  CLI::App& status_command = *app.add_subcommand("status", "Tells how a running cluster stands: who is there, and who waits for whom");
  describe_status(status_command, read.status);

  const auto dashes = std::ranges::find(words, "--");
  const std::vector<std::string> command(dashes == words.end() ? dashes : dashes + 1, words.end());
  words.erase(dashes, words.end());
  if (words.empty()) words = {"--help"};
  std::ranges::reverse(words);  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ExtrasError& error) {
    if (run_command.parsed()) throw UsageError{fmt::format("{} (the workers' command follows after --)", error.what())};
    throw UsageError{error.what()};
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    if (!asked) throw UsageError{error.what()};
    std::ostringstream text;
    app.exit(error, text, text);
    read.text = text.str();
    return read;
  }
  using Which = CommandLine::Which;
  for (const auto& [chosen, which] : {std::pair(&run_command, Which::kRun), std::pair(&server_command, Which::kServer),
                                       std::pair(&checkpoint_command, Which::kInspect), std::pair(&trace_command, Which::kTrace),
                                       std::pair(&doctor_command, Which::kDoctor), std::pair(&status_command, Which::kStatus)})
    if (chosen->parsed()) read.which = which;
  if (read.which == Which::kRun) {
    read.run.commands = split_commands(command);
    read.run.settings = parse_settings(settings);
    check(read.run);
  }
  return read;
}

}  // namespace mv::tools
