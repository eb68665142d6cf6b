#pragma once
// A writer for Chrome's trace format (JSON), which chrome://tracing and ui.perfetto.dev open.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace mv::telemetry {

/// A trace of one process, numbered by its rank. Each track has a number, a name and a position in the order.
class ChromeTrace {
 public:
  /// Times are written in microseconds since `origin`. The trace also contains `origin_since_1970`, so that the traces
  /// of several processes can be aligned.
  ChromeTrace(int64_t rank, std::string_view process_name, base::Nanos origin, base::Nanos origin_since_1970);

  /// The machine's name, for the trace's reader: processes of one machine share a clock.
  void set_host(std::string_view host) { host_ = host; }
  void track(uint64_t track, std::string_view name);
  /// An event from `begin` to `end`. The slices of one track do not overlap. `arguments` is JSON, or "".
  void slice(uint64_t track, std::string_view name, base::Nanos begin, base::Nanos end, std::string_view arguments);
  /// The two ends of an arrow from a slice of one process to a slice of another. Both have the same id and belong to
  /// the slice just written.
  void leaves(uint64_t track, uint64_t flow, base::Nanos at) { flow_end('s', track, flow, at); }
  void arrives(uint64_t track, uint64_t flow, base::Nanos at) { flow_end('f', track, flow, at); }
  /// The same between two slices of this process, which may have been written before: from a change to an answer that
  /// contains it.
  void seen(uint64_t flow, uint64_t from, base::Nanos changed, uint64_t to, base::Nanos answered);
  /// An event without a length, drawn across the process.
  void instant(std::string_view category, std::string_view name, base::Nanos at, std::string_view arguments);
  /// An event that may overlap others of its category.
  void span(std::string_view category, uint64_t id, std::string_view name, base::Nanos begin, base::Nanos end, std::string_view arguments);

  std::string take();

 private:
  void metadata(std::string_view what, uint64_t track, std::string_view argument);
  void flow_end(char phase, uint64_t track, uint64_t flow, base::Nanos at, std::string_view name = "message");
  void begin_event();

  const int64_t rank_;
  const base::Nanos origin_, origin_since_1970_;
  std::string host_;
  std::string text_;
  bool any_ = false;
};

}  // namespace mv::telemetry
