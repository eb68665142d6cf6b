#pragma once
// How the launcher learns the number of servers that the cluster shall have: the master writes it into a pipe, which the run's processes open
// by its path under /proc. The library's side is core/runtime/resize.cpp.

#include <uv.h>

#include <array>
#include <functional>
#include <string>

namespace mv::tools {

class Resizes {
 public:
  /// `draining`: how many of the servers are about to leave.
  using Wanted = std::function<void(int servers, int draining)>;

  /// `wanted` is called by the loop. Without a pipe, path() is empty, and nothing is ever wanted.
  Resizes(uv_loop_t* loop, Wanted wanted);
  ~Resizes();
  Resizes(const Resizes&) = delete;
  Resizes& operator=(const Resizes&) = delete;

  /// For POLYVERSO_RESIZES.
  std::string path() const;
  /// Ends the reading; the loop has to run once more before it is closed.
  void close();

 private:
  void read(std::string_view text);

  const Wanted wanted_;
  uv_pipe_t pipe_{};
  int write_end_ = -1;
  std::string line_;
  std::array<char, 256> buffer_;
};

}  // namespace mv::tools
