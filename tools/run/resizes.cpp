#include "run/resizes.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>
#include <utility>

#include <fmt/core.h>

namespace mv::tools {

namespace {
constexpr size_t kLongestLine = 1 << 20;
}

Resizes::Resizes(uv_loop_t* loop, Wanted wanted) : wanted_(std::move(wanted)) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;
  uv_pipe_init(loop, &pipe_, 0);
  pipe_.data = this;
  uv_pipe_open(&pipe_, ends[0]);
  write_end_ = ends[1];
  uv_read_start(
      reinterpret_cast<uv_stream_t*>(&pipe_),
      [](uv_handle_t* handle, size_t, uv_buf_t* room) {
        auto& self = *static_cast<Resizes*>(handle->data);
        *room = uv_buf_init(self.buffer_.data(), static_cast<unsigned>(self.buffer_.size()));
      },
      [](uv_stream_t* stream, ssize_t got, const uv_buf_t* room) {
        if (got > 0) static_cast<Resizes*>(stream->data)->read({room->base, static_cast<size_t>(got)});
      });
  uv_unref(reinterpret_cast<uv_handle_t*>(&pipe_));
}

Resizes::~Resizes() {
  if (write_end_ >= 0) ::close(write_end_);
}

std::string Resizes::path() const { return write_end_ >= 0 ? fmt::format("/proc/{}/fd/{}", getpid(), write_end_) : ""; }

void Resizes::close() {
  if (write_end_ >= 0 && !uv_is_closing(reinterpret_cast<uv_handle_t*>(&pipe_))) uv_close(reinterpret_cast<uv_handle_t*>(&pipe_), nullptr);
}

void Resizes::read(std::string_view text) {
  for (const char c : text) {
    if (c != '\n') {
      if (line_.size() < kLongestLine) line_ += c;
      continue;
    }
    std::istringstream words(std::exchange(line_, ""));
    std::string word;
    int servers = 0;
    words >> word;
    const bool is_asked = word == "start";
    if (is_asked) words >> word;
    if (word != "servers" || !(words >> servers)) continue;
    std::vector<int> staying;
    for (int rank = 0; words >> rank;) staying.push_back(rank);
    wanted_(servers, staying, is_asked);
  }
}

}  // namespace mv::tools
