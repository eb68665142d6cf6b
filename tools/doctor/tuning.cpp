#include "doctor/tuning.hpp"

#include <dlfcn.h>
#include <polyverso/polyverso.h>
#include <unistd.h>
#include <uv.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "doctor/tuning_report.hpp"
#include "library_text.hpp"
#include "run/launcher.hpp"

namespace mv::tools {
namespace {

/// What a step did not come to, as a sentence.
struct Failure {
  std::string text;
};

[[noreturn]] void throw_failure(const char* doing) { throw Failure{fmt::format("{}: {}", doing, mv_last_error())}; }

void say_step(const std::string& step) {
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "polyverso doctor: {} ...\n", step);
}

constexpr uint32_t kFlags = uint32_t{MV_TUNE} | uint32_t{MV_JSON};

/// With all other workers of this node's cluster.
Json measure(mv_node node) {
  std::string text;
  const auto ask = [&](char* to, uint64_t capacity, uint64_t* length) { return mv_doctor_text(node, kFlags, to, capacity, length); };
  if (whole_text(ask, text) != MV_OK) throw_failure("can't measure");
  return Json::parse(text);
}

// ------------------------------------------------------------ nodes and processes of our own

/// Nodes of this process, a thread each.
Json measure_nodes(int workers) {
  const std::string cluster = fmt::format("polyverso-doctor-{}", getpid());
  std::vector<Json> reports(static_cast<size_t>(workers));
  std::vector<std::string> failures(reports.size());
  const auto live = [&](size_t rank) {
    try {
      mv_init_options options = MV_INIT_OPTIONS_INIT;
      options.nodes = workers;
      options.rank = static_cast<int64_t>(rank);
      options.role = MV_ROLE_ALL;
      options.master = cluster.c_str();
      options.transport = "inproc";
      mv_node node = 0;
      if (mv_node_open(&options, &node) != MV_OK) throw_failure("can't start a node");
      reports[rank] = measure(node);
      if (mv_shutdown(node) != MV_OK) throw_failure("can't end a node");
    } catch (const Failure& failure) {
      failures[rank] = failure.text;
    }
  };
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < reports.size(); ++rank) threads.emplace_back(live, rank);
  live(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures)
    if (!failure.empty()) throw Failure{failure};
  return reports[0];
}

/// A file for what a process of ours tells, gone with this.
class Message {
 public:
  Message() {
    const char* folder = std::getenv("TMPDIR");
    path_ = fmt::format("{}/polyverso-doctor-XXXXXX", folder != nullptr && *folder != '\0' ? folder : "/tmp");
    const int fd = mkstemp(path_.data());
    if (fd < 0) throw Failure{fmt::format("can't make {}: {}; set TMPDIR to a writable folder", path_, strerror(errno))};
    close(fd);
  }
  ~Message() { unlink(path_.c_str()); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  const std::string& path() const { return path_; }
  Json read() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return Json::parse(text.str());
  }

 private:
  std::string path_;
};

std::string own_program() {
  std::array<char, 4096> path{};
  size_t length = path.size();
  return uv_exepath(path.data(), &length) == 0 ? path.data() : "/proc/self/exe";
}

/// Processes as `polyverso run` starts them, whose first one leaves its report.
Json measure_processes(int workers, const char* transport) {
  const Message message;
  RunOptions options;
  options.workers_wished = workers;
  options.settings["transport"] = transport;
  options.settings["tuning"] = "trial";  // what is known is measured again
  options.commands = {{own_program(), "doctor", "--tune", "--report", message.path()}};
  check(options);
  if (Launcher(options).run() != 0) throw Failure{fmt::format("the measuring processes (transport={}) have failed, see above", transport)};
  return message.read();
}

/// Whether the plug-in for UCX is installed beside the library, or named.
bool has_ucx() {
  if (std::getenv("POLYVERSO_UCX_PLUGIN") != nullptr) return true;
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&mv_doctor_text), &library) == 0 || library.dli_fname == nullptr) return false;
  const std::string file = library.dli_fname;
  return access((file.substr(0, file.rfind('/') + 1) + "libpolyverso-ucx.so").c_str(), R_OK) == 0;
}

Json measure_machine(int workers) {
  Json report;
  say_step(fmt::format("inproc: {} nodes in this process", workers));
  merge(report, measure_nodes(workers));
  say_step(fmt::format("shm: {} processes, messages through shared memory", workers));
  merge(report, measure_processes(workers, "auto"));
  say_step(fmt::format("tcp: {} processes, messages over TCP on loopback", workers));
  merge(report, measure_processes(workers, "tcp"));
  if (!has_ucx()) return report;
  say_step(fmt::format("ucx: {} processes, messages by UCX on loopback", workers));
  merge(report, measure_processes(workers, "ucx"));
  return report;
}

// ------------------------------------------------------------ what is told

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw Failure{fmt::format("can't write {}: {}", path, strerror(errno))};
}

/// Why shared memory was not measured, where it could have been; empty if it was.
std::string why_not_shm(const Json& report) {
  std::string why;
  for (const Json& transport : report["transports"]) {
    if (transport["transport"] == "shm") return "";
    if (transport["why_not_shm"] != "" && transport["why_not_shm"] != "transport=tcp") why = transport["why_not_shm"].get<std::string>();
  }
  return why;
}

int tell(const Json& report, const DoctorOptions& options) {
  const std::string why = why_not_shm(report);
  std::string text = options.json ? report.dump(2) + "\n" : tuning_text(report);
  if (!options.output.empty()) write_file(options.output, export_line(report));
  if (!options.json) {
    if (!why.empty())
      text += fmt::format("problem  shared memory was not measured: {}\n         -> run `polyverso doctor` to see whether it works here; see \"memory\"\n\n", why);
    text += export_line(report);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return why.empty() ? 0 : 1;
}

/// As one worker of the cluster that a launcher has started.
int measure_here(const DoctorOptions& options) {
  int64_t worker = 0;
  int status = 0;
  if (mv_worker_id(0, &worker) != MV_OK) throw_failure("can't join");
  if (worker == 0) say_step("messages between the workers of this cluster");
  const Json report = worker >= 0 ? measure(0) : Json();
  if (worker == 0 && !options.report.empty())
    write_file(options.report, report.dump());
  else if (worker == 0)
    status = tell(report, options);
  if (mv_shutdown(0) != MV_OK) throw_failure("while leaving");
  return status;
}

}  // namespace

int run_tuning(const DoctorOptions& options) {
  try {
    int64_t nodes = 1;
    if (mv_init(nullptr) != MV_OK || mv_size(0, &nodes) != MV_OK) throw_failure("can't join");
    if (nodes > 1) return measure_here(options);
    if (!options.report.empty()) throw Failure{"--report is for one process of several"};  // not a machine of its own again
    if (mv_shutdown(0) != MV_OK) throw_failure("while leaving");
    return tell(measure_machine(options.workers), options);
  } catch (const Failure& failure) {
    fmt::print(stderr, "polyverso doctor: {}\n", failure.text);
    return 1;
  }
}

}  // namespace mv::tools
