#pragma once
// The last things that a node did, in a ring that forgets the oldest: what `polyverso trace` shows.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/link.hpp"
#include "base/tick_clock.hpp"

namespace mv::base {

enum class TraceKind : uint8_t { kSent, kReceived, kCall, kGate };

/// kSent, kReceived: a message handed to a transport, or worked off, between two ticks. kCall: a call of this process that took messages;
/// kGate: a request that this server held back; both between two times of the loop's clock.
struct TraceEvent {
  uint64_t begin, end;
  Peer peer;       ///< whose message it is, or to whom; whose request was held back
  uint64_t seq;    ///< the message's number; of a call or a wait: any that sets it apart
  uint32_t bytes;  ///< of the message
  TraceKind kind;
  uint8_t what;    ///< wire::Body of a message or request, table::Use of a call
};

/// Of the loop's thread.
class TraceRing {
 public:
  /// @param events  how many are kept; 0: none, and noting costs a comparison
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
  /// What is there, the oldest first.
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
