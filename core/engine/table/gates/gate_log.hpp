#pragma once
// Measures how long gates hold requests back.

#include "base/histogram.hpp"
#include "base/trace.hpp"
#include "wire/frame.hpp"

namespace mv::table {

class GateLog {
 public:
  /// The waits of changes, and of gets.
  const base::Histogram& changes() const { return changes_; }
  const base::Histogram& gets() const { return gets_; }
  /// Also records every wait in `trace`.
  void trace_to(base::TraceRing* trace) { trace_ = trace; }

  /// Records a request whose turn has come.
  void released(wire::Body what, base::Peer whose, base::Nanos since, base::Nanos now) {
    (what == wire::Body::Get ? gets_ : changes_).record(now - since);
    if (trace_ == nullptr) return;
    trace_->note({static_cast<uint64_t>(since.count()), static_cast<uint64_t>(now.count()), whose, trace_->handled(), 0, base::TraceKind::kGate,
                  static_cast<uint8_t>(what)});
  }

 private:
  base::Histogram changes_, gets_;
  base::TraceRing* trace_ = nullptr;
};

}  // namespace mv::table
