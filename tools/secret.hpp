#pragma once
// A cluster's secret, where a command takes it from a file.

#include <fstream>
#include <string>

namespace mv::tools {

/// One line, so that a trailing newline is not part of it. False if there is none.
inline bool read_secret(const std::string& path, std::string& secret) {
  std::ifstream file(path);
  return std::getline(file, secret) && !secret.empty();
}

}  // namespace mv::tools
