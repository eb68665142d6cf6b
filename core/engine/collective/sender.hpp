#pragma once
// Sends all messages of groups.

#include <functional>
#include <memory>
#include <utility>

#include "engine/rpc/client.hpp"
#include "wire/form.hpp"

namespace mv::collective {

/// Sends messages of groups as changes of rpc: exactly once and in order, even if the connection breaks. They do not
/// count against rpc's windows, because a member that is slow to join an operation must not delay changes of tables.
/// Operations limit their own bytes in flight. Loop thread only.
class Sender {
 public:
  /// @param reaches  whether a peer is a member that is not lost. Messages for other peers are dropped, because nobody
  ///                 would report that they are not taken. Empty: all peers are members
  explicit Sender(rpc::Client& client, std::function<bool(base::Peer)> reaches = {});

  /// Hears when the receiver has used a message, or will never use it.
  class Receipt : public rpc::Pending {
   public:
    virtual void taken() = 0;

   private:
    friend class Sender;
    void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) final;
    Sender* sender_ = nullptr;
  };

  wire::FrameBuilder& builder() { return builder_; }
  /// For chunks with a tail of so many bytes; null: there is none for them.
  const wire::Form<wire::Collect>* form(size_t tail) const { return tail == 0 ? &plain_ : tail == sizeof(int64_t) ? &with_number_ : nullptr; }
  /// @param receipt  null: nobody needs to know
  void send(base::Peer to, base::Frame frame, std::shared_ptr<Receipt> receipt = nullptr);
  /// Runs `work` once no message is in flight, possibly at once.
  void when_all_taken(std::function<void()> work);

  uint64_t bytes_sent = 0;

 private:
  void taken();

  rpc::Client& client_;
  const std::function<bool(base::Peer)> reaches_;
  wire::FrameBuilder builder_;
  const wire::Form<wire::Collect> plain_, with_number_;
  size_t open_ = 0;
  std::function<void()> when_all_taken_;
};

}  // namespace mv::collective
