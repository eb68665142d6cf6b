// The `polyverso` command. It uses the library as anybody else does: through its public header.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "base/standard_descriptors.hpp"
#include "command_line.hpp"
#include "run/guard.hpp"
#include "run/launcher.hpp"

namespace {

using namespace mv::tools;

int run(const CommandLine& line) {
  switch (line.which) {
    case CommandLine::Which::kRun:
      return Launcher(line.run).run();
    case CommandLine::Which::kServer:
      return run_server(line.server);
    case CommandLine::Which::kInspect:
      return inspect_checkpoint(line.inspect);
    case CommandLine::Which::kTrace:
      return show_trace(line.trace);
    case CommandLine::Which::kDoctor:
      return run_doctor(line.doctor);
    case CommandLine::Which::kStatus:
      return show_status(line.status);
    case CommandLine::Which::kScale:
      return scale(line.scaled);
    case CommandLine::Which::kExport:
      return export_metrics(line.exported);
    case CommandLine::Which::kDashboard:
      return serve_dashboard(line.dashboard);
    default:
      fmt::print("{}", line.text);
      return 0;
  }
}

/// The status of a command whose output has been written, or that of one whose output is lost, as on a full disk.
int written(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fmt::print(stderr, "polyverso: can't write the output: {}\n", std::strerror(errno));
  return status == 0 ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  mv::base::fill_standard_descriptors();
  if (argc > 1 && std::string_view(argv[1]) == kExecWord) return run_armed(argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == kGuardWord) return run_guard();
  try {
    return written(run(read_command_line({argv + 1, argv + argc})));
  } catch (const UsageError& error) {
    fmt::print(stderr, "polyverso: {}\n", error.text);
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "polyverso: {}\n", error.what());
    return 1;
  }
}
