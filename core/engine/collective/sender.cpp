#include "engine/collective/sender.hpp"

#include <utility>

namespace mv::collective {

namespace {
/// A queue that belongs to no table: messages keep their order, and never wait for messages of a table.
constexpr uint64_t kQueue = UINT64_MAX;
}  // namespace

class Sender::Outgoing final : public rpc::Pending {
 public:
  Outgoing(Sender& sender, std::function<void()> taken) : sender_(sender), taken_(std::move(taken)) {}
  void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) override {
    sender_.taken();
    if (taken_) taken_();
  }

 private:
  Sender& sender_;
  const std::function<void()> taken_;
};

void Sender::send(base::Peer to, base::Frame frame, std::function<void()> taken) {
  if (reaches_ && !reaches_(to)) return taken ? taken() : void();
  ++open_;
  rpc::Call call;
  call.frame = std::move(frame);
  call.pending = std::make_shared<Outgoing>(*this, std::move(taken));
  call.wants_answer = false;
  call.queue = kQueue;
  call.priority = INT64_MAX;
  client_.call(to, std::move(call));
}

void Sender::taken() {
  if (--open_ == 0 && when_all_taken_) std::exchange(when_all_taken_, nullptr)();
}

void Sender::when_all_taken(std::function<void()> work) {
  if (open_ == 0) return work();
  when_all_taken_ = std::move(work);
}

}  // namespace mv::collective
