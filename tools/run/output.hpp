#pragma once
// What the processes of a run write, line by line, each with its label in front.

#include <string>
#include <string_view>

#include "run/interrupt_traces.hpp"

namespace mv::tools {

/// Cuts a stream into pieces, as they come: lines, and what is meant to be overwritten.
class LineSplitter {
 public:
  enum class End {
    kNewline,  ///< a whole line, or the rest at the stream's end, or the beginning of an endless one
    kReturn,   ///< ended by a carriage return: a progress line
  };

  /// Calls emit(text, end) for each piece that these bytes complete.
  template <typename Emit>
  void feed(std::string_view bytes, const Emit& emit) {
    for (const char c : bytes) {
      if (c == '\n') {
        take(End::kNewline, emit);
        progress_ = false;
      } else {
        if (return_pending_) take(End::kReturn, emit);
        if (c == '\r') {
          return_pending_ = true;  // the end of a line after all if \n follows
        } else {
          piece_ += c;
        }
      }
      if (piece_.size() >= kLongest) take(End::kNewline, emit);
    }
  }

  /// The rest, at the end of the stream.
  template <typename Emit>
  void finish(const Emit& emit) {
    if (!piece_.empty()) take(End::kNewline, emit);
  }

  /// An unfinished progress line: what a program that writes "\r50 %" wants to be seen now. Empty if there is none.
  std::string_view progress() const {
    return progress_ || return_pending_ ? std::string_view(piece_) : std::string_view();
  }

 private:
  static constexpr size_t kLongest = 64 << 10;

  template <typename Emit>
  void take(End end, const Emit& emit) {
    if (end == End::kNewline || !piece_.empty()) emit(std::string_view(piece_), end);
    if (end == End::kReturn) progress_ = true;
    piece_.clear();
    return_pending_ = false;
  }

  std::string piece_;
  bool return_pending_ = false;
  bool progress_ = false;  ///< the piece follows a carriage return
};

enum class Channel { kOut, kErr };

/// One of the two streams of a process.
struct Source {
  Channel channel;
  std::string prefix;
  LineSplitter splitter;
  InterruptTraces traces;
  bool names_lost_peer = false;  ///< a line has MV_EPEERLOST: the process has failed because another one is gone
};

/// The launcher's own standard output and error. A line is written whole.
class Output {
 public:
  explicit Output(bool color);

  /// What stands before a process's lines: "[w0] ", in the colour number `color`, -1 for none.
  std::string prefix(Channel channel, std::string_view label, int color) const;

  void feed(Source& source, std::string_view bytes);
  void finish(Source& source);
  /// A line of the launcher's own, on standard error.
  void say(std::string_view text);

  /// Nobody reads a channel any more (EPIPE).
  bool broken() const { return out_.broken || err_.broken; }
  /// Whether something could not be written, for another reason, such as a full disk. What comes later is tried again.
  bool has_lost() const { return has_lost_; }

 private:
  struct Sink {
    int fd;
    bool terminal, color;
    bool broken = false;
  };

  Sink& sink(Channel channel) { return channel == Channel::kOut ? out_ : err_; }
  void lose(Channel channel, int error);
  void append(Channel channel, std::string_view prefix, std::string_view text, char end);
  void flush(Channel channel);

  Sink out_, err_;
  bool has_lost_ = false;
  std::string pending_;          ///< for one write
  bool progress_shown_ = false;  ///< the terminal's last line is a progress line, the cursor at its beginning
};

}  // namespace mv::tools
