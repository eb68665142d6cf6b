#pragma once
// Copies a part to a new back-up while its server continues to serve it.

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "engine/replica/part.hpp"
#include "engine/rpc/client.hpp"
#include "shard/snapshot.hpp"

namespace mv::replica {

/// The sender's side of a transfer:
///  1. It asks whether it may begin. The receiver must know from the master that it gets a copy.
///  2. It waits for a moment when nothing waits in the part. If there is none, it keeps new requests away for a moment.
///  3. At that moment it begins to pass on the part's inputs, sends the streams and the tables' counts, and takes a
///     snapshot of all values, with what the updaters keep beside them.
///  4. It sends the snapshot piece by piece, with inputs in between. The receiver applies them when it has everything.
///  5. When the receiver has confirmed the end, the sender tells the master. From then on the copy may take over.
/// From 3 on, nothing is acknowledged that the receiver does not have.
///
/// After a load, the existing back-up gets the part again: steps 2 to 4. It keeps its old copy until the new one is
/// complete. Loop thread only.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  struct Events {
    std::function<void()> passes_on;  ///< the part's inputs go to the receiver from now on
    std::function<void()> is_equal;   ///< the receiver has an equal copy
    std::function<void()> failed;     ///< the receiver is alive, but refuses the copy
  };

  Transfer(const base::Clock& clock, rpc::Client& peers, Part& part, uint32_t number, base::Peer to, Events events);
  ~Transfer();
  void begin();
  /// Copies the part again to the same back-up, which has all inputs so far and still receives them.
  void begin_again();

  base::Nanos next_deadline() const { return next_; }
  /// The receiver has confirmed that it has everything.
  bool is_confirmed() const { return is_confirmed_; }
  /// To be called at next_deadline(), and between messages.
  void tick();

 private:
  class Answered;
  enum class Stage { kAsking, kWaiting, kSending, kOver };
  struct Values {
    uint32_t table;
    std::unique_ptr<shard::Snapshot> snapshot;
  };

  void refused(const base::Status& why);
  void permitted(const base::Status& status);
  void wait_for_calm(base::Nanos now);
  bool try_to_start();
  bool take_snapshots();
  void send_state();
  void pump();
  bool cut_rows();
  bool send_next();
  void send(wire::ReplicaEvent event, const wire::ReplicaRows* rows, const base::PayloadRef& payload, void (Transfer::*done)(const base::Status&));
  void sent(const base::Status& status);
  void confirmed(const base::Status& status);

  const base::Clock& clock_;
  rpc::Client& peers_;
  Part& part_;
  const uint32_t number_;
  const base::Peer to_;
  const Events events_;
  wire::FrameBuilder builder_;
  Stage stage_ = Stage::kAsking;
  /// The receiver may not acknowledge inputs until the copy is complete (Parts::take_in()), and they fill the window then, so the copy must
  /// overtake them. An existing back-up acknowledges inputs as they come, and those before the snapshot must reach it before the copy.
  bool is_new_ = true;
  bool is_calm_ = false, is_refused_ = false, is_confirmed_ = false;
  base::Nanos next_ = base::kNever;                     ///< when to look again
  base::Nanos calm_for_{0};                             ///< how long the last attempt kept new requests away
  base::Nanos until_ = base::kNever;                    ///< when to stop waiting for a calm moment, or keeping new requests away
  std::deque<Values> values_;                           ///< not sent yet
  std::shared_ptr<const std::vector<std::byte>> rows_;  ///< that are being sent
  wire::ReplicaRows cut_;                               ///< their table and place, and the offset of the first byte that is not sent
  size_t under_way_ = 0;
};

}  // namespace mv::replica
