#pragma once
// Ring buffers of a node's most recent events. `polyverso trace` shows them.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/link.hpp"
#include "base/tick_clock.hpp"

namespace mv::base {

enum class TraceKind : uint8_t { kSent, kReceived, kCall, kGate, kBlocked, kGroup, kPart };

/// What a rank does in an operation of a group. kMore: what is not measured in detail. kGather: only by messages.
enum class TracePart : uint8_t { kWait, kCopyIn, kReduce, kCopyOut, kMore, kGather };
inline constexpr std::array<const char*, 6> kTracePartNames = {"wait", "copy in", "reduce", "copy out", "more blocks", "gather"};

/// kSent, kReceived: a message passed to a transport, or processed; kBlocked: a thread of the program that waited for the
/// loop; begin and end are ticks of TickClock, as these are the most frequent ones. kCall: a call of this process that needed
/// messages; kGate: a request that a gate of this server held back; kGroup: an operation of a group; kPart: a part of one;
/// these in time of the loop's clock.
struct TraceEvent {
  uint64_t begin, end;
  Peer peer;       ///< the sender or receiver of the message; the sender of the request held back; the rank that a group's
                   ///< operation in shared memory waited for longest
  uint64_t seq;    ///< the message's sequence number, or a heartbeat's question; kGate: the peer whose message opened the
                   ///< gate; kGroup: nanoseconds of the wait for `peer`; kPart: the begin of the operation
  uint32_t bytes;  ///< size of the message
  TraceKind kind;
  uint8_t what;    ///< wire::Body of a message or request, table::Use of a call, collective::Kind, TracePart
  uint16_t table = 0;  ///< of a received Change or Get: 1 + the table's number at this server, if it fits; else 0
};

/// Loop thread only.
class TraceRing {
 public:
  /// @param events  capacity; with 0 nothing is recorded, and note() costs one comparison
  explicit TraceRing(size_t events) : size_(events), events_(events > 0 ? std::make_unique_for_overwrite<TraceEvent[]>(events) : nullptr) {}

  bool on() const { return size_ > 0; }
  uint64_t ticks() const { return clock_.read(); }
  const TickClock& clock() const { return clock_; }
  /// The sender of the message that is being processed, or kNobody.
  Peer handled() const { return handled_; }
  void set_handled(Peer from) { handled_ = from; }

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
  Peer handled_ = kNobody;
  TickClock clock_;
};

/// A ring for the events of callers' threads. Any thread.
class CallerTrace {
 public:
  explicit CallerTrace(size_t events) : ring_(events) {}
  bool on() const { return ring_.on(); }
  uint64_t ticks() const { return ring_.ticks(); }
  void note(const TraceEvent& event) {
    note(std::span(&event, 1));
  }
  void note(std::span<const TraceEvent> events) {
    const std::scoped_lock lock(mutex_);
    for (const TraceEvent& event : events) ring_.note(event);
  }
  std::vector<TraceEvent> copy() const {
    const std::scoped_lock lock(mutex_);
    return ring_.copy();
  }

  /// A wait of the calling thread, for as long as this object exists: it is noted at its end only, and a trace that is taken before must have it
  /// nevertheless. Takes no lock, because every blocking call makes one. With more threads than places, some are left out.
  class Open {
   public:
    Open(CallerTrace& trace, uint64_t since) {
      for (std::atomic<uint64_t>& place : trace.open_) {
        uint64_t free = 0;
        if (place.load(std::memory_order_relaxed) != 0 || !place.compare_exchange_strong(free, since, std::memory_order_relaxed)) continue;
        place_ = &place;
        return;
      }
    }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    ~Open() {
      if (place_ != nullptr) place_->store(0, std::memory_order_relaxed);
    }

   private:
    std::atomic<uint64_t>* place_ = nullptr;
  };
  /// When the waits began that are not over, in ticks.
  std::vector<uint64_t> open() const {
    std::vector<uint64_t> since;
    for (const std::atomic<uint64_t>& place : open_)
      if (const uint64_t ticks = place.load(std::memory_order_relaxed); ticks != 0) since.push_back(ticks);
    return since;
  }

 private:
  mutable std::mutex mutex_;
  TraceRing ring_;
  std::array<std::atomic<uint64_t>, 16> open_{};  ///< 0: a free place
};

}  // namespace mv::base
