#include "engine/collective/transfers.hpp"

#include <algorithm>
#include <utility>

namespace mv::collective {

namespace {
/// A send of at most so many bytes may end before the message is received.
constexpr size_t kSentAtOnce = 64 << 10;
static_assert(kSentAtOnce <= kCopied);

Value value_of(const Operation& operation) {
  Value value;
  for (const Array& array : operation.out) value.add(array, math::Reduction::kSum);
  return value;
}
}  // namespace

/// A chunk of a send.
class Group::Transfers::Taken final : public Sender::Receipt {
 public:
  Taken(Transfers& transfers, uint64_t send, uint32_t rank, const Outgoing& chunk)
      : group_(transfers.group_.weak_from_this()), transfers_(transfers), send_(send), chunk_(chunk.number), bytes_(chunk.bytes()), rank_(rank) {}
  void taken() override {
    const auto group = group_.lock();  // the caller's thread may drop a closed group meanwhile
    if (group == nullptr) return;
    const bool keeps_up = transfers_.outstanding_.taken(rank_, bytes_);
    transfers_.taken(send_, chunk_);
    if (keeps_up) transfers_.keep_up();
  }

 private:
  const std::weak_ptr<Group> group_;
  Transfers& transfers_;
  const uint64_t send_, chunk_;
  const size_t bytes_;
  const uint32_t rank_;
};

struct Group::Transfers::Transfer final : Execution::Owner, base::Work {
  Transfer(Transfers& transfers, Operation asked, base::OperationRef caller)
      : transfers(transfers), operation(std::move(asked)), call(std::move(caller)), peer(operation.root), signature(sign(operation, 0)) {}

  void withdraw(mv_status code) override { transfers.withdraw(*this, code); }
  void send_chunk(int32_t to, const Outgoing& chunk) override {
    const auto rank = static_cast<uint32_t>(to);
    transfers.outstanding_.sent(rank, chunk.bytes());
    transfers.group_.send_collect(rank, number, signature, chunk, std::make_shared<Taken>(transfers, number, rank, chunk));
  }
  void chunk_taken(const Chunk& chunk) override {
    if (!transfers.group_.forgotten_) transfers.group_.server_.finish(chunk.asked);
  }
  void execute(Schedule schedule) {
    const Setting& at = transfers.group_.setting_;
    execution = std::make_unique<Execution>(*this, value_of(operation), std::move(schedule), at.rank, at.layout.hosts);
  }
  Range all() const { return {0, operation.out.front().count}; }

  Transfers& transfers;
  const Operation operation;
  const base::OperationRef call;
  uint64_t peer;        ///< the other rank; kAnyRank until a message is there
  uint64_t number = 0;  ///< of the message, by its sender; for a receive once the message is there
  const wire::Signature signature;
  const base::Nanos since = transfers.group_.clock_.now();
  bool held = false;    ///< it is done, and waits until its receiver is not far behind
  bool busy = false;    ///< against re-entry: a send to a lost peer calls `taken` before it returns
  std::unique_ptr<Execution> execution;  ///< for a receive once the message is there
};

std::string Group::Transfers::describe(const Transfer& transfer) const {
  const bool sends = transfer.operation.kind == Kind::kSend;
  const std::string who = transfer.peer == kAnyRank ? "any rank" : group_.name(static_cast<uint32_t>(transfer.peer));
  return fmt::format("{} {} {}", collective::describe(transfer.signature), sends ? "to" : "from", who);
}

void Group::Transfers::begin(Operation&& operation, const base::OperationRef& call) {
  const auto transfer = std::make_shared<Transfer>(*this, std::move(operation), call);
  call->begin(transfer);
  if (transfer->operation.kind == Kind::kRecv) {
    receives_.push_back(transfer);
    if (const auto found = first_for(*transfer); found != messages_.end()) return attach(found, transfer);
    if (transfer->peer == kAnyRank ? !all_left() : !group_.closed_.contains(static_cast<uint32_t>(transfer->peer))) return meet(*transfer);
    const char* const who = transfer->peer == kAnyRank ? "all other ranks have" : "it has";
    return group_.break_group(base::error(MV_EPEERLOST, "{}: {} left the group", describe(*transfer), who), true);
  }
  const auto to = static_cast<uint32_t>(transfer->peer);
  if (group_.closed_.contains(to)) {
    sends_.emplace(++sent_, transfer);
    return group_.break_group(base::error(MV_EPEERLOST, "{}: it has left the group", describe(*transfer)), true);
  }
  transfer->number = ++sent_;
  sends_.emplace(transfer->number, transfer);
  transfer->execute({send_step(static_cast<int32_t>(to), transfer->all())});
  transfer->execution->send_first_alone();
  if (transfer->all().count == 0)  // the receiver waits for it nevertheless
    group_.send_collect(to, transfer->number, transfer->signature, {}, nullptr);
  settle_send(transfer->number);
}

/// The ranks that this receive waits for tell this one when they leave, once they have heard of it.
void Group::Transfers::meet(const Transfer& receive) {
  for (uint32_t rank = 0; rank < group_.members_.peers.size(); ++rank)
    if ((receive.peer == kAnyRank || receive.peer == rank) && !group_.met_[rank] && group_.is_other(rank))
      group_.tell(rank, wire::GroupWord::Waits, [](Note&) {});
}

/// The first message that this receive can take.
Group::Transfers::Messages::iterator Group::Transfers::first_for(const Transfer& receive) {
  auto best = messages_.end();
  const bool any = receive.peer == kAnyRank;
  auto at = any ? messages_.begin() : messages_.lower_bound({static_cast<uint32_t>(receive.peer), 0});
  for (; at != messages_.end() && (any || at->first.first == receive.peer); ++at) {
    const Message& message = at->second;
    if (message.receive != nullptr || message.dropped || message.signature.hash() != receive.signature.hash()) continue;
    if (best == messages_.end() || message.arrived < best->second.arrived) best = at;
  }
  return best;
}

/// The receive takes the message. One that does not fit is dropped.
void Group::Transfers::attach(Messages::iterator found, const TransferRef& receive) {
  Message& message = found->second;
  const auto from = found->first.first;
  const wire::Signature &mine = receive->signature, &theirs = message.signature;
  receive->peer = from;
  receive->number = found->first.second;
  message.receive = receive;
  if (receive->operation.source != nullptr) *receive->operation.source = from;
  const bool same_dtype = theirs.dtype() == mine.dtype(), same_count = theirs.elements() == mine.elements();
  if (!same_dtype || !same_count || !labels_fit(theirs.label(), mine.label())) {
    const char* const more = same_dtype && same_count ? kOtherLabel : "";
    const std::string what = collective::describe(theirs);
    const mv_status code = same_dtype ? MV_ESHAPE : MV_EDTYPE;
    return drop(*receive, base::error(code, "{}: the message is a {}{}, and was dropped", describe(*receive), what, more));
  }
  receive->execute({receive_step(static_cast<int32_t>(from), receive->all(), Step::Arrival::kCopy)});
  for (Chunk& chunk : std::exchange(message.early, {})) {
    group_.received_ += chunk.bytes.size();
    if (chunk.range.count == 0)
      group_.server_.finish(chunk.asked);
    else
      receive->execution->received(static_cast<int32_t>(from), std::move(chunk));
  }
  settle_receive(receive);
  if (!receive->call->done() && group_.closed_.contains(from))  // the rest will not come
    group_.break_group(base::error(MV_EPEERLOST, "{}: it has left the group", describe(*receive)), true);
}

void Group::Transfers::taken(uint64_t send, uint64_t chunk) {
  const auto found = sends_.find(send);
  if (found == sends_.end()) return;
  found->second->execution->sent(chunk);
  settle_send(send);
}

/// Makes all possible progress, and ends the send when it is done.
void Group::Transfers::settle_send(uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end() || std::exchange(found->second->busy, true)) return;
  const TransferRef send = found->second;
  static_cast<void>(send->execution->advance());  // it receives nothing that could be wrong
  if (send->operation.out.front().bytes() <= kSentAtOnce) send->execution->stop();
  send->busy = false;
  if (!send->execution->done()) return;
  const auto to = static_cast<uint32_t>(send->peer);
  if (outstanding_.is_behind(to) && !group_.lost_.contains(to)) {
    if (!std::exchange(send->held, true)) held_.push_back(number);
    return;
  }
  if (sends_.erase(number) == 0) return;
  send->execution->stop();
  send->call->complete({});
}

void Group::Transfers::settle_receive(const TransferRef& receive) {
  if (std::exchange(receive->busy, true)) return;
  const base::Status wrong = receive->execution->advance();
  receive->busy = false;
  if (!wrong.ok()) return group_.break_group(base::error(wrong.code(), "{}: {}", describe(*receive), wrong.text()), true);
  if (!receive->execution->done()) return;
  receive->execution->stop();
  messages_.erase({static_cast<uint32_t>(receive->peer), receive->number});
  receives_.remove(receive);
  receive->call->complete({});
}

/// Ends a receive, and drops its message if that is there.
void Group::Transfers::drop(Transfer& receive, const base::Status& why) {
  const auto self = std::find_if(receives_.begin(), receives_.end(), [&](const TransferRef& each) { return each.get() == &receive; });
  if (self == receives_.end()) return;
  const TransferRef kept = *self;
  receives_.erase(self);
  const auto found = kept->number == 0 ? messages_.end() : messages_.find({static_cast<uint32_t>(kept->peer), kept->number});
  if (found != messages_.end()) {
    Message& message = found->second;
    message.receive = nullptr;
    message.dropped = true;
    finish_early(message);
    if (message.seen >= message.signature.elements()) messages_.erase(found);
  }
  kept->call->complete(why);
}

void Group::Transfers::finish_early(Message& message) {
  for (const Chunk& chunk : std::exchange(message.early, {})) group_.server_.finish(chunk.asked);
}

void Group::Transfers::on_chunk(const rpc::Asked& asked, const wire::Collect& collect, std::span<const std::byte> payload,
                                const base::SinkRef& staged) {
  const Key key{collect.from(), collect.op()};
  auto found = messages_.find(key);
  if (found == messages_.end()) {
    if (collect.first() != 0) return group_.server_.finish(asked);  // of a message that was dropped
    found = messages_.emplace(key, Message{++arrived_, *collect.signature(), {}, nullptr, false, 0}).first;
  }
  Message& message = found->second;
  Chunk chunk{{collect.first(), collect.count()}, payload, staged, nullptr, asked, collect.awaited()};
  message.seen += chunk.range.count;
  if (message.dropped) {
    if (message.seen >= message.signature.elements()) messages_.erase(found);
    return group_.server_.finish(asked);
  }
  if (const TransferRef receive = message.receive; receive != nullptr) {
    group_.received_ += payload.size();
    receive->execution->received(static_cast<int32_t>(key.first), std::move(chunk));
    return settle_receive(receive);
  }
  chunk.keep();
  message.early.push_back(std::move(chunk));
  const auto fits = [&](const TransferRef& receive) {
    const bool is_sender = receive->peer == kAnyRank || receive->peer == key.first;
    return receive->execution == nullptr && is_sender && receive->signature.hash() == message.signature.hash();
  };
  const auto waiting = std::find_if(receives_.begin(), receives_.end(), fits);
  if (waiting != receives_.end()) attach(found, TransferRef(*waiting));
}

base::SinkRef Group::Transfers::place(const wire::Collect& collect, size_t bytes) {
  const auto found = messages_.find({collect.from(), collect.op()});
  if (found == messages_.end() || found->second.receive == nullptr) return nullptr;
  const TransferRef receive = found->second.receive;
  const bool was_busy = std::exchange(receive->busy, true);
  base::SinkRef sink = receive->execution->place(static_cast<int32_t>(collect.from()), {collect.first(), collect.count()}, bytes);
  receive->busy = was_busy;
  return sink;
}

bool Group::Transfers::all_left() const { return group_.closed_.size() + 1 >= group_.members_.peers.size(); }

bool Group::Transfers::await(uint32_t rank) const {
  return std::any_of(receives_.begin(), receives_.end(),
                     [&](const TransferRef& receive) { return receive->peer == kAnyRank ? all_left() : receive->peer == rank; });
}

void Group::Transfers::keep_up() {
  for (const uint64_t number : std::exchange(held_, {})) {
    const auto found = sends_.find(number);
    if (found == sends_.end()) continue;
    found->second->held = false;
    settle_send(number);
  }
}

void Group::Transfers::withdraw(Transfer& transfer, mv_status code) {
  if (transfer.operation.kind == Kind::kRecv && transfer.execution == nullptr)
    return drop(transfer, base::error(code, "{} was withdrawn: no message has arrived for it", describe(transfer)));
  group_.break_group(base::error(code, "{} has withdrawn a {}", group_.name(static_cast<uint32_t>(group_.setting_.rank)), describe(transfer)), true);
}

void Group::Transfers::end(const base::Status& why) {
  const auto sends = std::exchange(sends_, {});
  const auto receives = std::exchange(receives_, {});
  auto messages = std::exchange(messages_, {});
  for (auto& [key, message] : messages) finish_early(message);
  const auto stop = [](const TransferRef& transfer) {
    if (transfer->execution != nullptr) transfer->execution->stop();
  };
  for (const auto& [number, send] : sends) stop(send);
  for (const TransferRef& receive : receives) stop(receive);
  for (const auto& [number, send] : sends) send->call->complete(why);
  for (const TransferRef& receive : receives) receive->call->complete(why);
}

void Group::Transfers::forget() {
  sends_.clear();
  receives_.clear();
  messages_.clear();
}

// ---- state and time

void Group::Transfers::add_waits(std::vector<cluster::Wait>& waits) const {
  const base::Nanos now = group_.clock_.now();
  const auto add = [&](const TransferRef& transfer) {
    const base::Nanos age = std::max(base::Nanos{0}, now - transfer->since);
    const auto& peers = group_.members_.peers;
    const base::Peer self = peers[static_cast<size_t>(group_.setting_.rank)];
    cluster::Wait& wait =
        waits.emplace_back(cluster::Wait{cluster::WaitKind::kCollective, self, collective::describe(transfer->signature), 0, age, age, {}});
    const char* const what = transfer->operation.kind == Kind::kSend ? "has not received it" : "has not sent it";
    if (transfer->peer != kAnyRank) wait.awaited.push_back({peers[transfer->peer], what});
  };
  for (const auto& [number, send] : sends_) add(send);
  for (const TransferRef& receive : receives_) add(receive);
}

base::Nanos Group::Transfers::next_deadline() const {
  base::Nanos next = base::kNever;
  for (const auto& [number, send] : sends_) next = std::min(next, send->call->deadline());
  for (const TransferRef& receive : receives_) next = std::min(next, receive->call->deadline());
  return next;
}

void Group::Transfers::tick(base::Nanos now) {
  const auto is_late = [&](const TransferRef& transfer) { return transfer->call->deadline() <= now; };
  const auto gave_up = [&](const Transfer& transfer, const char* why) {
    const std::string self = group_.name(static_cast<uint32_t>(group_.setting_.rank));
    group_.break_group(base::error(MV_ETIMEOUT, "{} has given up a {}: {}", self, describe(transfer), why), true);
  };
  for (const auto& [number, send] : sends_)
    if (is_late(send)) return gave_up(*TransferRef(send), "the message was not received");
  while (true) {
    const auto late = std::find_if(receives_.begin(), receives_.end(), is_late);
    if (late == receives_.end()) return;
    const TransferRef receive = *late;
    if (receive->execution != nullptr) return gave_up(*receive, "a part of the message has not arrived");
    drop(*receive, base::error(MV_ETIMEOUT, "{}: no message has arrived for it", describe(*receive)));
  }
}

}  // namespace mv::collective
