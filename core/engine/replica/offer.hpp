#pragma once
// Finds the moment at which a part can be copied.

#include <deque>
#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "engine/replica/part.hpp"
#include "engine/rpc/client.hpp"

namespace mv::replica {

/// What the primary of a part does before a copy:
///  1. It asks the receiver whether the copy may begin, then the process that will send it, if that is another one. Both
///     must know from the master that the receiver gets it.
///  2. It waits for a moment when nothing waits in the part. If there is none, it keeps new requests away for a moment.
/// Loop thread only.
class Offer : public std::enable_shared_from_this<Offer> {
 public:
  /// @param start  called at such a moment; false: it was not possible, later
  Offer(const base::Clock& clock, rpc::Client& peers, Part& part, std::function<bool()> start)
      : clock_(clock), peers_(peers), part_(part), start_(std::move(start)) {}
  ~Offer();
  /// The process `to` gets a copy of part `number` from `sender`, by the view of this epoch.
  struct Terms {
    uint32_t number = 0;
    base::Peer to = base::kNobody, sender = base::kNobody;
    uint64_t epoch = 0;
  };
  /// @param self  this process
  void ask(const Terms& terms, base::Peer self);
  /// Does not ask: step 2 only.
  void wait();

  base::Nanos next_deadline() const { return next_; }
  /// To be called at next_deadline(), and between messages. True if the copy has begun: the offer is over.
  bool tick();

 private:
  class Answered;
  void send();
  void permitted(const base::Status& status);
  bool wait_for_calm(base::Nanos now);

  const base::Clock& clock_;
  rpc::Client& peers_;
  Part& part_;
  const std::function<bool()> start_;
  wire::FrameBuilder builder_;
  Terms terms_;
  std::deque<base::Peer> unasked_;  ///< the next one to ask, and those to be asked after it
  bool is_permitted_ = false, is_calm_ = false;
  base::Nanos next_ = base::kNever;   ///< when to look again
  base::Nanos calm_for_{0};           ///< how long the last attempt kept new requests away
  base::Nanos until_ = base::kNever;  ///< when to stop waiting for a calm moment, or keeping new requests away
};

}  // namespace mv::replica
