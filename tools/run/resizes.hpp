#pragma once
// How the launcher learns the wanted number of servers, and which servers there are: the master writes both into a pipe, which the run's
// processes open by its path under /proc. The library's side is core/runtime/resize.cpp.

#include <uv.h>

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mv::tools {

class Resizes {
 public:
  /// `staying`: the ranks of the cluster's servers, without those that are about to leave.
  /// @param is_asked  after a request, which may be for as many servers as before
  using Wanted = std::function<void(int servers, const std::vector<int>& staying, bool is_asked)>;

  /// `wanted` is called by the loop, after each change of either, and after each request. Without a pipe, path() is empty, and nothing is ever wanted.
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
