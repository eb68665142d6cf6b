#pragma once
// How far the clocks of machines are apart, by the messages between their processes.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mv::tools {

/// A process's clock, against the clock of the first process of the trace. Clock of the process = clock of the first +
/// offset + drift · (time of the process - origin).
struct Clock {
  double offset = 0;  ///< microseconds, at `origin`
  double drift = 0;   ///< microseconds per microsecond
  double origin = 0;  ///< microseconds, on the process's clock
  double error = 0;   ///< microseconds: the true offset is at most so far away, if messages took as long both ways at best
  bool known = true;  ///< false: no messages connect the two processes
  /// The process's time on the first process's clock.
  double common(double time) const { return time - offset - drift * (time - origin); }
};

/// Estimates a clock for each process of a merged trace. Processes of one machine share a clock. Between two machines a
/// message can't arrive before it was sent: the fastest messages of each direction are the bounds (Cristian, 1989), and
/// their middle, in parts of the trace, gives the offset and the drift.
/// @param hosts  each process's machine
/// @param trace  with absolute times in microseconds, and the arrows of the messages
std::map<int64_t, Clock> clocks_of(const std::map<int64_t, std::string>& hosts, const nlohmann::json& events);

}  // namespace mv::tools
