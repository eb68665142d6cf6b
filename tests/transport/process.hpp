#pragma once
// A child process with pipes to its standard input and from its standard output. Killed by the destructor.

#include <sys/types.h>
#include <string>
#include <vector>

namespace mv::test {

class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// One line of its output, without the newline; empty at the end.
  std::string line();
  void signal(int number);
  /// Sends SIGKILL and waits until it has ended.
  void kill();

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
};

}  // namespace mv::test
