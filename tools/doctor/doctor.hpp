#pragma once
// `polyverso doctor`: what was detected, what works, and what to do about what doesn't.

#include <string>
#include <vector>

namespace mv::tools {

struct DoctorOptions {
  bool json = false;
  bool join = false;                  ///< also starts a node, and asks its peers
  std::string master, secret_file;    ///< empty: from the environment. A master: only the way to it
  std::vector<std::string> settings;  ///< further "key=value"
  bool tune = false;                  ///< measures what messages cost, and nothing else
  int workers = 2;                    ///< that are started for it where there is no cluster
  std::string output;                 ///< a file for the line that sets what was measured; empty: none
  std::string report;                 ///< a file for worker 0's report, instead of any text: for processes that this program starts
};

/// 0 if all is well, 1 if something has to be done.
int run_doctor(const DoctorOptions& options);

}  // namespace mv::tools
