#pragma once
// What a command line of `polyverso` asks for.

#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "dashboard/dashboard.hpp"
#include "doctor/doctor.hpp"
#include "export/export.hpp"
#include "run/options.hpp"
#include "scale.hpp"
#include "server.hpp"
#include "status.hpp"
#include "trace/trace.hpp"

namespace mv::tools {

struct CommandLine {
  enum class Which { kText, kRun, kServer, kInspect, kTrace, kDoctor, kStatus, kDashboard, kExport, kScale };

  Which which = Which::kText;
  std::string text;  ///< kText: what is to be shown, as --help and --version want it
  RunOptions run;
  ServerOptions server;
  InspectOptions inspect;
  TraceOptions trace;
  DoctorOptions doctor;
  StatusOptions status;
  DashboardOptions dashboard;
  ExportOptions exported;
  ScaleOptions scaled;
};

/// `words`: the command line behind the program's name. What follows `--` is passed to the workers unread. Throws UsageError.
CommandLine read_command_line(const std::vector<std::string>& words);

}  // namespace mv::tools
