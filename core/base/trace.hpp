#pragma once
// A ring buffer of a node's most recent events. `polyverso trace` shows it.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/link.hpp"
#include "base/tick_clock.hpp"

namespace mv::base {

enum class TraceKind : uint8_t { kSent, kReceived, kCall, kGate };

/// kSent, kReceived: a message passed to a transport, or processed; begin and end are ticks of TickClock. kCall: a call
/// of this process that needed messages; kGate: a request that a gate of this server held back; both in time of the
/// loop's clock.
struct TraceEvent {
  uint64_t begin, end;
  Peer peer;       ///< the sender or receiver of the message; the sender of the request held back
  uint64_t seq;    ///< the message's sequence number; for kCall and kGate, any distinguishing number
  uint32_t bytes;  ///< size of the message
  TraceKind kind;
  uint8_t what;    ///< wire::Body of a message or request, table::Use of a call
};

/// Loop thread only.
class TraceRing {
 public:
  /// @param events  capacity; with 0 nothing is recorded, and note() costs one comparison
  explicit TraceRing(size_t events) : size_(events), events_(events > 0 ? std::make_unique_for_overwrite<TraceEvent[]>(events) : nullptr) {}

  bool on() const { return size_ > 0; }
  uint64_t ticks() const { return clock_.read(); }
  const TickClock& clock() const { return clock_; }

  void note(const TraceEvent& event) {
    if (size_ == 0) return;
    events_[next_] = event;
    if (++next_ == size_) {
      next_ = 0;
      full_ = true;
    }
  }
  /// The recorded events, oldest first.
  std::vector<TraceEvent> copy() const {
    std::vector<TraceEvent> events;
    events.reserve(full_ ? size_ : next_);
    if (full_) events.insert(events.end(), events_.get() + next_, events_.get() + size_);
    events.insert(events.end(), events_.get(), events_.get() + next_);
    return events;
  }

 private:
  const size_t size_;
  std::unique_ptr<TraceEvent[]> events_;
  size_t next_ = 0;
  bool full_ = false;
  TickClock clock_;
};

}  // namespace mv::base
