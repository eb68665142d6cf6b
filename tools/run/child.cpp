#include "run/child.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "run/guard.hpp"

namespace mv::tools {
namespace {

/// Helpers of a process that has ended (Python's resource tracker, say) get this long to end by themselves.
constexpr uint64_t kDrainMs = 500;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

std::string describe(const Ending& ending) {
  if (ending.signal == 0) return fmt::format("exited with {}", ending.status);
  const char* name = sigabbrev_np(ending.signal);
  return name != nullptr ? fmt::format("was killed by SIG{}", name)
                         : fmt::format("was killed by signal {}", ending.signal);
}

Child::Child(uv_loop_t* loop, Process process, int color, Output& output, Events events)
    : loop_(loop), process_(std::move(process)), output_(output), events_(std::move(events)) {
  for (const Channel channel : {Channel::kOut, Channel::kErr}) {
    Stream& stream = streams_[channel == Channel::kOut ? 0 : 1];
    stream.child = this;
    stream.source.channel = channel;
    stream.source.prefix = output_.prefix(channel, process_.label, color);
  }
}

std::string Child::who() const {
  return process_.rank < 0 ? fmt::format("{} (pid {})", process_.name, pid()) : fmt::format("{} (pid {}, rank {})", process_.name, pid(), process_.rank);
}

// Real pipes: libuv would make sockets, which a program can't open again as /dev/stdout.
int Child::open_streams(std::array<int, 2>& write_ends) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    std::array<int, 2> ends;
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return uv_translate_sys_error(errno);
    write_ends[i] = ends[1];
    uv_pipe_init(loop_, &streams_[i].pipe, 0);
    streams_[i].pipe.data = &streams_[i];
    streams_[i].open = true;
    if (const int error = uv_pipe_open(&streams_[i].pipe, ends[0]); error != 0) {
      close(ends[0]);
      return error;
    }
  }
  return 0;
}

int Child::start(const std::string& self, const Descriptors& descriptors) {
  std::array<int, 2> write_ends{-1, -1};
  int error = open_streams(write_ends);
  if (error == 0) error = spawn(self, descriptors, write_ends);
  started_ = error == 0;
  for (const int fd : write_ends) {
    if (fd >= 0) close(fd);
  }
  for (Stream& stream : streams_) {
    if (started_) {
      start_reading(stream);
    } else {
      close_stream(stream);
    }
  }
  return error;
}

int Child::spawn(const std::string& self, const Descriptors& descriptors, const std::array<int, 2>& outputs) {
  const auto inherited = [](int fd) {
    uv_stdio_container_t entry{};
    entry.flags = fd >= 0 ? UV_INHERIT_FD : UV_IGNORE;
    entry.data.fd = fd;
    return entry;
  };
  static_assert(kMasterSocketFd == 3);
  std::array entries{inherited(descriptors.input), inherited(outputs[0]), inherited(outputs[1]),
                     inherited(descriptors.master_socket)};
  std::vector<std::string> command{self, kExecWord, std::to_string(getpid())};
  command.insert(command.end(), process_.command.begin(), process_.command.end());
  std::vector<char*> arguments = pointers(command), environment = pointers(process_.environment);
  uv_process_options_t options{};
  options.file = self.c_str();
  options.args = arguments.data();
  options.env = environment.data();
  options.stdio = entries.data();
  options.stdio_count = descriptors.master_socket >= 0 ? 4 : 3;
  // UV_PROCESS_DETACHED would give it a session of its own, and so a group of its own in the scheduler (sched_autogroup): processes that share a
  // processor could not yield to each other. run_armed() gives it a process group.
  options.exit_cb = [](uv_process_t* handle, int64_t status, int signal) {
    static_cast<Child*>(handle->data)->on_exit(status, signal);
  };
  handle_.data = this;
  const int error = uv_spawn(loop_, &handle_, &options);
  if (error != 0) uv_close(reinterpret_cast<uv_handle_t*>(&handle_), nullptr);
  return error;
}

void Child::start_reading(Stream& stream) {
  uv_read_start(
      reinterpret_cast<uv_stream_t*>(&stream.pipe),
      [](uv_handle_t* handle, size_t, uv_buf_t* into) {
        Child& child = *static_cast<Stream*>(handle->data)->child;
        *into = uv_buf_init(child.buffer_.data(), static_cast<unsigned>(child.buffer_.size()));
      },
      [](uv_stream_t* handle, ssize_t bytes, const uv_buf_t* from) {
        Stream& stream = *static_cast<Stream*>(handle->data);
        stream.child->read(stream, bytes, from->base);
      });
}

void Child::signal(int number) {
  if (started_ && !finished_ && kill(-pid(), number) != 0 && running()) kill(pid(), number);  // it has no group yet
}

void Child::hide_interrupt_traces() {
  for (Stream& stream : streams_) stream.source.traces.hide();
}

void Child::read(Stream& stream, ssize_t bytes, const char* data) {
  if (bytes > 0)
    return output_.feed(stream.source, {data, static_cast<size_t>(bytes)});
  if (bytes == 0) return;
  close_stream(stream);
  if (ending_.has_value() && !streams_[0].open && !streams_[1].open) finish();
}

void Child::close_stream(Stream& stream) {
  if (!stream.open) return;
  stream.open = false;
  output_.finish(stream.source);
  uv_close(reinterpret_cast<uv_handle_t*>(&stream.pipe), nullptr);
}

void Child::on_exit(int64_t status, int signal) {
  ending_ = Ending{static_cast<int>(status), signal};
  uv_close(reinterpret_cast<uv_handle_t*>(&handle_), nullptr);
  uv_timer_init(loop_, &drain_);
  drain_.data = this;
  uv_timer_start(
      &drain_, [](uv_timer_t* timer) { static_cast<Child*>(timer->data)->finish(); }, kDrainMs, 0);
  events_.on_exited(*this);
  if (!streams_[0].open && !streams_[1].open) finish();
}

void Child::finish() {
  if (finished_) return;
  kill(-pid(), SIGKILL);  // what it left behind; its number is still ours, it ended just now
  finished_ = true;
  for (Stream& stream : streams_) close_stream(stream);
  uv_close(reinterpret_cast<uv_handle_t*>(&drain_), nullptr);
  events_.on_closed(*this);
}

}  // namespace mv::tools
