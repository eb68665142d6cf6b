#include "engine/collective/execution.hpp"

#include <algorithm>
#include <utility>

namespace mv::collective {

namespace {
/// Bytes of an operation that one rank may have in flight, not yet taken by their receivers. On a slow line, the news that
/// a chunk was taken waits behind the receiver's own chunks. The window towards other hosts therefore exceeds what sockets
/// and routers queue in both directions. A larger one than necessary costs copies, because elements in flight may be
/// written over.
constexpr size_t kWindow = 4 << 20, kFarWindow = 16 << 20;

/// Redirects a message that is being received into other memory: a transport cannot stop in the middle of a message.
void divert(base::Sink& sink) {
  const size_t bytes = sink.memory().size();
  const std::shared_ptr<std::byte[]> aside(new std::byte[bytes]);
  sink.divert({aside.get(), bytes}, aside);
}

size_t steps_to_reduce(const Schedule& schedule) {
  size_t steps = schedule.size();
  while (steps > 0 && (schedule[steps - 1].from == Step::kNone || schedule[steps - 1].arrival != Step::Arrival::kReduce)) --steps;
  return steps;
}
}  // namespace

void Chunk::keep() {
  if (staged != nullptr || own != nullptr) return;
  own = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  bytes = *own;
}

Execution::Execution(Owner& owner, Value value, std::shared_ptr<const Schedule> schedule, int32_t rank, std::span<const int32_t> hosts, bool manual)
    : owner_(owner), value_(std::move(value)), shared_schedule_(std::move(schedule)), schedule_(*shared_schedule_), is_small_(value_.bytes({0, value_.count()}) <= kCopied),
      reductions_(steps_to_reduce(schedule_)), rank_(rank), hosts_(hosts), manual_(manual) {}

base::Status Execution::advance() {
  base::Status wrong;
  while (!stopped_) {
    const bool received = receive_more(&wrong);
    if (!wrong.ok() || (!send_more() && !received)) break;
  }
  if (wrong.ok() && receiving_ == schedule_.size() && sending_ == schedule_.size()) copy_rest();
  return wrong;
}

/// When all chunks are received and sent: copying the last ones takes less time than their acknowledgements. A receiver
/// that reads them in this process's memory would have to be told of the copy, and is done sooner.
void Execution::copy_rest() {
  if (first_alone_) return;  // the end of such a large send means that it was received
  size_t bytes = 0;
  bool borrowed = false;
  for (const Sent& sent : lent_) {
    if (!sent.awaited) sent.payload->make_owned();
    borrowed |= sent.payload->is_borrowed();
    if (sent.payload->is_lent()) bytes += sent.bytes;
  }
  if (borrowed || bytes > kCopied) return;
  for (const Sent& sent : lent_) sent.payload->make_owned();
}

bool Execution::done() const {
  return receiving_ == schedule_.size() && sending_ == schedule_.size() &&
         std::none_of(lent_.begin(), lent_.end(), [](const Sent& sent) { return sent.payload->is_lent(); });
}

/// Takes one chunk or ends one step. False if neither is possible.
bool Execution::receive_more(base::Status* wrong) {
  if (receiving_ == schedule_.size() || waits_for_owner()) return false;
  const Step& step = schedule_[receiving_];
  if (step.from == Step::kNone || step_received_ == step.receive.count) {
    ++receiving_;
    step_received_ = 0;
    return true;
  }
  if (!turn_) {
    const auto early = waiting_.find(step.from);
    if (early == waiting_.end()) return false;
    turn_ = std::move(early->second.front());
    early->second.pop_front();
    if (early->second.empty()) waiting_.erase(early);
  }
  const Chunk chunk = *std::exchange(turn_, std::nullopt);
  *wrong = take(step, chunk);
  owner_.chunk_taken(chunk);
  ++moves_;
  return true;
}

base::Status Execution::take(const Step& step, const Chunk& chunk) {
  const Range& range = chunk.range;
  const bool fits = range.first == step.receive.first + step_received_ && range.count > 0 && range.count <= step.receive.count - step_received_;
  const Range head = chunk.tail.size == 0 ? range : value_.head(range), tail = {head.first + head.count, range.count - head.count};
  if (!fits || value_.bytes(head) != chunk.bytes.size() || value_.bytes(tail) != chunk.tail.size || chunk.tail.size > kTailBytes)
    return base::error(MV_EPROTOCOL, "received elements {} to {}, {} bytes, from rank {}; expected {} to {}", range.first,
                       range.first + range.count, chunk.size(), step.from, step.receive.first + step_received_,
                       step.receive.first + step.receive.count);
  step_received_ += range.count;
  if (is_manual(step)) {
    scratch_.scatter(head, chunk.bytes.data());
    scratch_.scatter(tail, chunk.tail.data.data());
    handed_ = step_received_ == step.receive.count;
    return {};
  }
  std::erase_if(direct_, [&](const Direct& direct) {
    const bool here = overlap(range, direct.range);
    if (here) divert(*direct.sink);  // it has arrived, or is a retry of a chunk that has
    return here;
  });
  vacate(range);
  apply(step, head, chunk.bytes.data());
  apply(step, tail, chunk.tail.data.data());
  return {};
}

void Execution::apply(const Step& step, const Range& range, const std::byte* theirs) {
  if (step.arrival == Step::Arrival::kReduce)
    value_.reduce(range, theirs, rank_ < step.from ? math::Operand::kFirst : math::Operand::kSecond);
  else if (value_.contiguous(range).data() != theirs)
    value_.scatter(range, theirs);
  else
    value_.written(range);
}

void Execution::resume() {
  handed_ = false;
  ++receiving_;
  step_received_ = 0;
}

/// Frees a range that is about to be overwritten: sends its unsent elements as copies, and copies those in flight.
void Execution::vacate(const Range& range) {
  for (const Sent& sent : lent_)
    if (!sent.elsewhere && overlap(sent.range, range)) sent.payload->make_owned();
  while (sending_ < schedule_.size() && sending_ <= receiving_) {
    const Step& step = schedule_[sending_];
    const Range left = {step.send.first + step_sent_, step.send.count - step_sent_};
    if (step.to == Step::kNone || left.count == 0) {
      if (sending_ == receiving_) return;
      ++sending_;
      step_sent_ = 0;
      continue;
    }
    const auto begin = schedule_.begin() + static_cast<ptrdiff_t>(sending_) + 1, end = schedule_.begin() + static_cast<ptrdiff_t>(receiving_) + 1;
    const bool later = std::any_of(begin, end, [&](const Step& each) { return each.to != Step::kNone && overlap(each.send, range); });
    if (!later && !overlap(left, range)) return;
    emit(step, {left.first, value_.chunk(left)}, true);
  }
}

/// False if nothing can be sent now.
bool Execution::send_more() {
  if (sending_ == schedule_.size()) return false;
  const Step& step = schedule_[sending_];
  const Range left = {step.send.first + step_sent_, step.send.count - step_sent_};
  if (step.to == Step::kNone || left.count == 0) {
    ++sending_;
    step_sent_ = 0;
    return true;
  }
  const Range chunk = {left.first, value_.chunk(left)};
  if (!is_final(chunk, sending_)) return false;
  const bool far = !hosts_.empty() && hosts_[static_cast<size_t>(step.to)] != hosts_[static_cast<size_t>(rank_)];
  const size_t window = first_alone_ && moves_ == 0 ? 0 : far ? kFarWindow : kWindow;
  if (under_way_ > 0 && under_way_ + value_.bytes(chunk) > window) return false;
  emit(step, chunk, false);
  return true;
}

/// Whether no earlier step still receives elements of this range.
bool Execution::is_final(const Range& range, size_t step) const {
  for (size_t i = receiving_; i < step; ++i) {
    const Step& before = schedule_[i];
    if (before.from == Step::kNone) continue;
    const uint64_t here = i == receiving_ && !is_manual(before) ? step_received_ : 0;
    if (overlap({before.receive.first + here, before.receive.count - here}, range)) return false;
  }
  return true;
}

void Execution::emit(const Step& step, const Range& chunk, bool written_over) {
  const Range head = value_.head(chunk), behind = {head.first + head.count, chunk.count - head.count};
  const std::span<std::byte> memory = value_.present(head);
  const bool elsewhere = memory.data() != value_.contiguous(head).data();
  const size_t bytes = value_.bytes(head);
  Outgoing sent{chunk, {}, nullptr, ++emitted_};
  sent.tail.size = value_.bytes(behind);
  if (sent.tail.size > 0) value_.gather(behind, sent.tail.data.data());
  step_sent_ += chunk.count;
  if (bytes <= wire::kSmallPayloadBytes) {
    std::array<std::byte, wire::kSmallPayloadBytes> gathered;
    if (memory.empty()) value_.gather(head, gathered.data());
    sent.small = memory.empty() ? std::span<const std::byte>(gathered).first(bytes) : memory;
    return owner_.send_chunk(step.to, sent);
  }
  base::PayloadRef& payload = sent.payload;
  if (memory.empty()) {
    const std::shared_ptr<std::byte[]> gathered(new std::byte[bytes]);
    value_.gather(head, gathered.get());
    payload = base::Payload::kept({gathered.get(), bytes}, gathered);
  } else {
    payload = written_over && !elsewhere ? base::Payload::copy(memory) : base::Payload::lent(memory);
  }
  sent.awaited = !is_small_ || payload->shared() != nullptr;
  under_way_ += bytes;
  lent_.push_back({emitted_, chunk, payload, bytes, sent.awaited, elsewhere});
  owner_.send_chunk(step.to, sent);
}

void Execution::received(int32_t from, Chunk chunk) {
  const bool now = receiving_ < schedule_.size() && schedule_[receiving_].from == from && is_first(from) && !waits_for_owner();
  if (now) {  // it is used before this returns to the transport
    turn_ = std::move(chunk);
    return;
  }
  chunk.keep();
  waiting_[from].push_back(std::move(chunk));
}

void Execution::sent(uint64_t number) {
  const auto found = std::find_if(lent_.begin(), lent_.end(), [&](const Sent& sent) { return sent.number == number; });
  if (found == lent_.end()) return;
  if (found->payload.use_count() > 1) found->payload->make_owned();  // a transport may still be sending a retry of it
  under_way_ -= found->bytes;
  lent_.erase(found);
  ++moves_;
}

base::SinkRef Execution::place(int32_t from, const Range& range, size_t bytes) {
  if (stopped_ || waits_for_owner() || receiving_ == schedule_.size()) return nullptr;
  const Step& step = schedule_[receiving_];
  if (step.from != from || step.arrival != Step::Arrival::kCopy || !is_first(from)) return nullptr;
  const uint64_t left = step.receive.count - step_received_;
  if (range.first != step.receive.first + step_received_ || range.count == 0 || range.count > left) return nullptr;
  std::span<std::byte> memory = value_.contiguous(range);
  if (memory.size() != bytes) memory = value_.contiguous(value_.head(range));  // the rest is the message's tail
  if (memory.empty() || memory.size() != bytes) return nullptr;
  vacate(range);
  direct_.push_back({range, base::Sink::into(memory)});
  return direct_.back().sink;
}

int32_t Execution::awaited() const { return receiving_ < schedule_.size() && !waits_for_owner() ? schedule_[receiving_].from : Step::kNone; }

void Execution::stop() {
  if (std::exchange(stopped_, true)) return;
  for (const Sent& sent : lent_) sent.payload->make_owned();
  for (const Direct& direct : direct_) divert(*direct.sink);
  if (turn_) owner_.chunk_taken(*std::exchange(turn_, std::nullopt));
  for (const auto& [from, chunks] : std::exchange(waiting_, {}))
    for (const Chunk& chunk : chunks) owner_.chunk_taken(chunk);
}

}  // namespace mv::collective
