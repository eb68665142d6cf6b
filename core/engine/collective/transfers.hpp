#pragma once
// The sends and receives of a group: messages from one rank to another. Part of group.hpp, for the files that implement
// it.

#include <list>

#include "engine/collective/group.hpp"

namespace mv::collective {

/// Transfers have no numbers among the operations of the group, because only two ranks take part. Each rank numbers its
/// sends. A receive takes the first untaken message with its sender and tag. Messages for which no receive waits are
/// kept; their senders send only one chunk of each before it is received. Loop thread only.
class Group::Transfers {
 public:
  explicit Transfers(Group& group) : group_(group), outstanding_(group.members_.peers.size()) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// kSend or kRecv.
  void begin(Operation&& operation, const base::OperationRef& call);
  void on_chunk(const rpc::Asked& asked, const wire::Collect& collect, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef place(const wire::Collect& collect, size_t bytes);
  /// Whether a receive waits for this rank, which has left, or for any rank after all have left.
  bool await(uint32_t rank) const;
  /// A rank that was far behind is so no more: sends that waited for that may be done.
  void keep_up();
  /// Ends all transfers with an error. The senders of messages that were not received learn that they were taken.
  void end(const base::Status& why);
  void forget();

  void add_waits(std::vector<cluster::Wait>& waits) const;
  base::Nanos next_deadline() const;
  void tick(base::Nanos now);

 private:
  struct Transfer;
  class Taken;
  using TransferRef = std::shared_ptr<Transfer>;
  using Key = std::pair<uint32_t, uint64_t>;  ///< a message: its sender, and the sender's number of it
  struct Message {
    uint64_t arrived = 0;  ///< counts the messages
    wire::Signature signature;  ///< its hash is the tag
    std::vector<Chunk> early;
    TransferRef receive;    ///< the receive that takes it
    bool dropped = false;   ///< the receive has failed
    uint64_t seen = 0;      ///< elements that have arrived
  };
  using Messages = std::map<Key, Message>;

  Messages::iterator first_for(const Transfer& receive);
  void meet(const Transfer& receive);
  void attach(Messages::iterator found, const TransferRef& receive);
  void taken(uint64_t send, uint64_t chunk);
  void settle_send(uint64_t number);
  void settle_receive(const TransferRef& receive);
  void withdraw(Transfer& transfer, mv_status code);
  void drop(Transfer& receive, const base::Status& why);
  void finish_early(Message& message);
  bool all_left() const;
  std::string describe(const Transfer& transfer) const;

  Group& group_;
  std::map<uint64_t, TransferRef> sends_;  ///< by number
  std::list<TransferRef> receives_;        ///< in the order of the calls
  Messages messages_;
  uint64_t sent_ = 0, arrived_ = 0;
  Outstanding outstanding_;
  std::vector<uint64_t> held_;  ///< sends that wait until their receiver is not far behind
};

}  // namespace mv::collective
