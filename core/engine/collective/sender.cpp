#include "engine/collective/sender.hpp"

#include <utility>

namespace mv::collective {

namespace {
/// A queue that belongs to no table: messages keep their order, and never wait for messages of a table.
constexpr uint64_t kQueue = UINT64_MAX;
// Limits of the messages in flight to a slow member.
constexpr size_t kMostMessages = 256;
constexpr size_t kMostBytes = 8 << 20;
}  // namespace

class Sender::Outgoing final : public rpc::Pending {
 public:
  Outgoing(Sender& sender, base::Peer to, size_t bytes, std::function<void()> taken)
      : sender_(sender), to_(to), bytes_(bytes), taken_(std::move(taken)) {}
  void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) override {
    sender_.taken(to_, bytes_);
    if (taken_) taken_();
  }

 private:
  Sender& sender_;
  const base::Peer to_;
  const size_t bytes_;
  const std::function<void()> taken_;
};

void Sender::send(base::Peer to, base::Frame frame, std::function<void()> taken) {
  if (reaches_ && !reaches_(to)) return taken ? taken() : void();
  Load& load = loads_[to];
  const size_t bytes = frame.bytes();
  ++load.messages;
  load.bytes += bytes;
  ++open_;
  rpc::Call call;
  call.frame = std::move(frame);
  call.pending = std::make_shared<Outgoing>(*this, to, bytes, std::move(taken));
  call.wants_answer = false;
  call.queue = kQueue;
  call.priority = INT64_MAX;
  client_.call(to, std::move(call));
}

void Sender::taken(base::Peer to, size_t bytes) {
  Load& load = loads_[to];
  --load.messages;
  load.bytes -= bytes;
  if (--open_ == 0 && when_all_taken_) std::exchange(when_all_taken_, nullptr)();
}

bool Sender::keeps_up(base::Peer to) const {
  const auto load = loads_.find(to);
  return load == loads_.end() || (load->second.messages < kMostMessages && load->second.bytes < kMostBytes);
}

void Sender::when_all_taken(std::function<void()> work) {
  if (open_ == 0) return work();
  when_all_taken_ = std::move(work);
}

}  // namespace mv::collective
