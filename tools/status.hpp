#pragma once
// `polyverso status`: how a running cluster stands.

#include <cstdint>
#include <optional>
#include <string>

namespace mv::tools {

struct StatusOptions {
  std::string master, secret_file;  ///< empty: from the environment, or of the runs on this machine
  int64_t run = 0;                  ///< a launcher's process id; 0: whichever there are
  bool json = false;
  std::optional<double> watch;      ///< seconds from one look to the next
};

/// 0 if a cluster has answered, else 1.
int show_status(const StatusOptions& options);

}  // namespace mv::tools
