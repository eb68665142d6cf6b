#pragma once
// Tells the processes that wait for the others to join which of those have ended. The file is in memory: the others open it by its path
// under /proc, and nothing is left of it when the launcher ends, however it ends. The library reads it in core/runtime/exits.cpp.

#include <string>

#include "run/child.hpp"

namespace mv::tools {

class Exits {
 public:
  Exits();
  ~Exits();
  Exits(const Exits&) = delete;
  Exits& operator=(const Exits&) = delete;

  /// For POLYVERSO_EXITS; empty if there is no such file.
  std::string path() const;
  /// Reports a process that has ended.
  void report(const Child& child);

 private:
  void write(const std::string& text);

  int fd_;
};

}  // namespace mv::tools
