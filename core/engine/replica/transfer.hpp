#pragma once
// Copies a part to a new back-up while its server continues to serve it.

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/replica/part.hpp"
#include "engine/rpc/client.hpp"
#include "shard/snapshot.hpp"

namespace mv::replica {

/// The sender's side of a transfer. The sender is the last process in the part's chain. It begins at a moment when
/// nothing waits in the part (offer.hpp):
///  1. It begins to pass the part's inputs to the receiver, sends the streams and the tables' counts, and takes a
///     snapshot of all values, with what the updaters keep beside them.
///  2. It sends the snapshot piece by piece, with inputs in between. The receiver applies them when it has everything.
///  3. When the receiver has confirmed the end, the sender tells the master. From then on the copy may take over.
/// From 1 on, nothing is acknowledged that the receiver does not have.
///
/// After a load, the primary gives the existing back-ups the new content in the same way: 1 and 2, along the chain. They
/// keep their old copies until the new ones are complete. Loop thread only.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  struct Events {
    std::function<void()> passes_on;  ///< the part's inputs go to the receiver from now on
    std::function<void()> is_equal;   ///< the receiver has an equal copy
    std::function<void()> failed;     ///< the receiver is alive, but refuses the copy
    /// Sends a piece to existing back-ups, in the order of the inputs. `done` is called when all of them have it. Null:
    /// the receiver is new.
    std::function<void(base::Frame, std::function<void()> done)> pass = {};
  };

  /// @param number, to  of the part, and the receiver
  Transfer(rpc::Client& peers, Part& part, uint32_t number, base::Peer to, Events events);
  /// Step 1. False: later.
  bool start();
  /// The receiver has confirmed that it has everything.
  bool is_confirmed() const { return is_confirmed_; }

 private:
  class Answered;
  struct Values {
    uint32_t table;
    std::unique_ptr<shard::Snapshot> snapshot;
  };

  void refused(const base::Status& why);
  bool take_snapshots();
  void send_state();
  void pump();
  bool cut_rows();
  bool send_next();
  void send(wire::ReplicaEvent event, const wire::ReplicaRows* rows, const base::PayloadRef& payload, void (Transfer::*done)(const base::Status&));
  void sent(const base::Status& status);
  void confirmed(const base::Status& status);

  rpc::Client& peers_;
  Part& part_;
  const uint32_t number_;
  const base::Peer to_;
  const Events events_;
  wire::FrameBuilder builder_;
  bool is_sending_ = false, is_refused_ = false, is_confirmed_ = false;
  std::deque<Values> values_;                           ///< not sent yet
  std::shared_ptr<const std::vector<std::byte>> rows_;  ///< that are being sent
  wire::ReplicaRows cut_;                               ///< their table and place, and the offset of the first byte that is not sent
  size_t under_way_ = 0;
};

}  // namespace mv::replica
