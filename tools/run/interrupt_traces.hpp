#pragma once
// Removes what interpreters print about the interrupt that ends them: Python's traceback of KeyboardInterrupt, Lua's of "interrupted!".
// Without it, one Ctrl-C prints a traceback for each worker.

#include <string>
#include <string_view>
#include <vector>

namespace mv::tools {

class InterruptTraces {
 public:
  /// From here on; before, all lines pass.
  void hide() { hiding_ = true; }
  /// Whether a traceback was removed.
  bool found() const { return found_; }

  /// Calls emit(line) for this line, for lines that were held back, or not at all.
  template <typename Emit>
  void pass(std::string_view line, const Emit& emit) {
    if (!hiding_) return emit(line);
    if (within(line)) return;
    release(emit);
    state_ = beginning(line);
    if (state_ == State::kNone) return emit(line);
    held_.emplace_back(line);
  }

  /// What is still held back, at the end of the stream.
  template <typename Emit>
  void finish(const Emit& emit) { release(emit); }

 private:
  enum class State {
    kNone,
    kPython,     ///< a traceback has begun; its last line decides
    kLua,        ///< "interrupted!"; a stack traceback may follow
    kLuaFrames,  ///< the frames of a traceback that is being removed
    kRemoved,    ///< behind one of Python's
  };

  static State beginning(std::string_view line) {
    if (line == "Traceback (most recent call last):") return State::kPython;
    return line.ends_with("interrupted!") ? State::kLua : State::kNone;
  }

  /// Whether the line belongs to a traceback that is held back or was removed.
  bool within(std::string_view line) {
    switch (state_) {
      case State::kPython:
        if (line.starts_with(' ')) {
          held_.emplace_back(line);
          return true;
        }
        return line == "KeyboardInterrupt" || line.starts_with("KeyboardInterrupt:") ? remove(State::kRemoved) : false;
      case State::kLua:
        return line == "stack traceback:" ? remove(State::kLuaFrames) : false;
      case State::kLuaFrames:
        return line.starts_with('\t');
      case State::kRemoved:  // between two chained tracebacks
        return line.empty() || line == "During handling of the above exception, another exception occurred:";
      default:
        return false;
    }
  }

  bool remove(State next) {
    held_.clear();
    state_ = next;
    return found_ = true;
  }

  template <typename Emit>
  void release(const Emit& emit) {
    for (const std::string& line : held_) emit(std::string_view(line));
    held_.clear();
    state_ = State::kNone;
  }

  State state_ = State::kNone;
  std::vector<std::string> held_;
  bool hiding_ = false, found_ = false;
};

}  // namespace mv::tools
