// The `polyverso` command. It uses the library as anybody else does: through its public header.

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

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

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == kExecWord) return run_armed(argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == kGuardWord) return run_guard();
  try {
    return run(read_command_line({argv + 1, argv + argc}));
  } catch (const UsageError& error) {
    fmt::print(stderr, "polyverso: {}\n", error.text);
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "polyverso: {}\n", error.what());
    return 1;
  }
}
