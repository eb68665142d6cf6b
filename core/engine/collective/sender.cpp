#include "engine/collective/sender.hpp"

#include <utility>

namespace mv::collective {

namespace {
/// A queue that belongs to no table: messages keep their order, and never wait for messages of a table.
constexpr uint64_t kQueue = UINT64_MAX;

wire::Form<wire::Collect> form_of(size_t tail) {
  return {wire::Body::Collect, [tail](flatbuffers::FlatBufferBuilder& fbb) {
    const wire::Signature signature;
    const auto bytes = tail > 0 ? fbb.CreateVector(std::vector<uint8_t>(tail)) : 0;
    return wire::CreateCollect(fbb, 0, 0, 0, 0, 0, &signature, false, bytes);
  }};
}

class Unneeded final : public Sender::Receipt {
  void taken() override {}
};
}  // namespace

Sender::Sender(rpc::Client& client, std::function<bool(base::Peer)> reaches)
    : client_(client), reaches_(std::move(reaches)), plain_(form_of(0)), with_number_(form_of(sizeof(int64_t))) {}

void Sender::Receipt::finish(const base::Status&, const wire::Message*, std::span<const std::byte>) {
  sender_->taken();
  taken();
}

void Sender::send(base::Peer to, base::Frame frame, std::shared_ptr<Receipt> receipt) {
  if (receipt == nullptr) receipt = std::make_shared<Unneeded>();
  if (reaches_ && !reaches_(to)) return receipt->taken();
  ++open_;
  receipt->sender_ = this;
  rpc::Call call;
  call.frame = std::move(frame);
  call.pending = std::move(receipt);
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
