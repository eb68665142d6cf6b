// What the primary of a part does with the parts of merging tables' rounds, and with the gets that wait for them.
//
// A round needs the part of every worker, and changes the values once, by their sum. So the back-up needs the sum once, not what each worker
// has sent: with W workers, a W-th of the bytes, which counts between hosts most of all. A part is therefore withheld: the gate gets it, but its
// worker gets no acknowledgement. When the last part of a stripe comes, one input takes the parts' requests, without their values, and the
// sum to the back-up, whose gate goes through the same requests and takes the sum in place of the values. If the primary dies before that,
// the workers repeat the parts, since none was acknowledged; they still have the values, in their windows. If it dies afterwards, the
// back-up knows the numbers of all the parts, so none counts twice.
//
// Parts of different workers commute until their stripe is merged, so they may come to the back-up in another order than to the primary. What
// does not commute with them comes first or afterwards at both: before another input of the same worker (numbers of a stream come in their
// order), or one about the same table, or an end or a beginning of a worker, the withheld parts that came before it are passed on one by
// one. So are those whose round is not merged within some milliseconds (Parts::tick()): a worker must not wait for the others
// in an add, and its window must not stay full.
//
// A get that waits for a round has no effect on the part. If the primary dies, its worker asks again. Only the loss of a worker makes the
// difference: it fails the gets that wait, which counts as having told their workers. Before that, the back-up gets them.

#include <algorithm>
#include <utility>

#include "engine/replica/part.hpp"

namespace mv::replica {

using wire::ReplicaEvent;
using Merges = std::vector<table::WithheldParts::Merge>;

/// A part that may be withheld.
void Part::pass_part(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) {
  Unsent last{asked, request.done(), wire::copy_header(request)};
  table::WithheldParts& withheld = tables_->withheld();
  outbox_.begin();  // gets that this part completes are answered at once, and what the back-up needs for that is sent below
  withheld.withhold(asked);
  withheld.begin();
  tables_->on_request(asked, request, payload, staged);
  const Merges merges = withheld.end();
  if (!merges.empty()) {
    send_round(merges, last);
  } else if (tables_->waiting_change(asked) != nullptr) {
    unsent_.push_back(std::move(last));
  } else {  // it was refused
    send_before(asked, request);
    log({.event = ReplicaEvent::Asked, .client = asked.client, .seq = asked.seq, .request = &request, .payload = payload, .staged = staged});
    tables_->release(asked);
  }
  outbox_.end();
}

/// Sends what has become of withheld parts and of `last`.
void Part::send_round(const Merges& merges, const Unsent& last) {
  if (send_sum(merges, last)) return;
  // Some of the parts are at the back-up already, or more than one stripe is merged: it makes the sums itself.
  const auto merged = [&](const rpc::Asked& asked) -> const table::WithheldParts::Merge::Addend* {
    for (const auto& merge : merges)
      for (const auto& part : merge.parts)
        if (part.asked == asked) return &part;
    return nullptr;
  };
  std::deque<Unsent> all = std::exchange(unsent_, {});
  all.push_back(last);
  for (const Unsent& unsent : all) {
    if (const auto* const part = merged(unsent.asked))
      pass_on_alone(unsent, part->payload, part->keep);
    else if (const auto* const waits = tables_->waiting_change(unsent.asked))
      pass_on_alone(unsent, waits->payload, waits->keep);
    tables_->release(unsent.asked);
  }
}

void Part::pass_on_alone(const Unsent& one, std::span<const std::byte> payload, const std::shared_ptr<const void>& keep) {
  const rpc::Asked& asked = one.asked;
  log({.event = ReplicaEvent::Asked, .client = asked.client, .seq = asked.seq, .request = &one.message(), .payload = payload, .staged = keep});
}

/// Passes one stripe's parts to the back-up as one input. False if that is not possible.
bool Part::send_sum(const Merges& merges, const Unsent& last) {
  if (merges.size() != 1 || merges.front().sum.memory == nullptr) return false;
  const auto& parts = merges.front().parts;
  using Merged = table::WithheldParts::Merge::Addend;
  const auto is_part = [&](const rpc::Asked& asked) { return std::ranges::find(parts, asked, &Merged::asked) != parts.end(); };
  const auto withheld = std::ranges::count_if(unsent_, [&](const Unsent& one) { return is_part(one.asked); });
  if (!is_part(last.asked) || withheld + 1 != std::ssize(parts)) return false;
  // Numbers of a stream come in their order.
  send_withheld_if([&](const Unsent& one) {
    const auto follows = [&](const Merged& part) { return part.asked.client == one.asked.client && part.asked.seq > one.asked.seq; };
    return !is_part(one.asked) && std::ranges::any_of(parts, follows);
  });
  std::vector<Unsent> of_round;
  std::erase_if(unsent_, [&](Unsent& one) {
    if (!is_part(one.asked)) return false;
    of_round.push_back(std::move(one));
    return true;
  });
  of_round.push_back(last);
  const base::Pool::Block& sum = merges.front().sum;
  log({.event = ReplicaEvent::Merged, .payload = sum.bytes, .staged = sum.memory, .parts = of_round});
  for (const Unsent& part : of_round) tables_->release(part.asked);
  return true;
}

template <typename Which>
void Part::send_withheld_if(Which which) {
  std::deque<Unsent> kept;
  for (Unsent& unsent : std::exchange(unsent_, {})) {
    if (!which(std::as_const(unsent))) {
      kept.push_back(std::move(unsent));
      continue;
    }
    const table::HeldChange* const waits = tables_->waiting_change(unsent.asked);
    if (waits != nullptr) pass_on_alone(unsent, waits->payload, waits->keep);  // otherwise a load of a checkpoint has failed it
    tables_->release(unsent.asked);
  }
  unsent_ = std::move(kept);
}

base::Nanos Part::withheld_since() const {
  base::Nanos since = base::kNever;
  for (const Unsent& one : unsent_)
    if (const table::HeldChange* const waits = tables_->waiting_change(one.asked)) since = std::min(since, waits->since);
  return since;
}

void Part::send_withheld(base::Nanos by) {
  if (unsent_.empty()) return;
  send_withheld_if([&](const Unsent& one) {
    const table::HeldChange* const waits = tables_->waiting_change(one.asked);
    return waits == nullptr || waits->since <= by;
  });
}

void Part::may_withhold(bool on) {
  may_withhold_ = on;
  if (!on) send_withheld();
}

/// What the back-up needs before this input.
void Part::send_before(const rpc::Asked& asked, const wire::Message& request) {
  if (unsent_.empty()) return;
  const auto* const change = request.body_as_Change();
  const auto* const get = request.body_as_Get();
  if (change == nullptr && get == nullptr) return send_withheld();
  const uint32_t table = change != nullptr ? change->table() : get->table();
  send_withheld_if([&](const Unsent& one) { return one.asked.client == asked.client || one.message().body_as_Change()->table() == table; });
}

/// Notes a get that waits.
void Part::keep_waiting(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload) {
  constexpr size_t kLookAgain = 64;
  if (waiting_.size() >= kLookAgain && (waiting_.size() & (waiting_.size() - 1)) == 0)
    std::erase_if(waiting_, [this](const Unsent& one) { return streams_.kind_of(one.asked) == wire::Body::NONE; });
  waiting_.push_back({asked, request.done(), wire::copy_header(request), {payload.begin(), payload.end()}});
}

/// Passes the gets that still wait to the back-up.
void Part::send_waiting() {
  for (const Unsent& one : std::exchange(waiting_, {}))
    if (streams_.kind_of(one.asked) != wire::Body::NONE) pass_on_alone(one, one.ids, nullptr);
}

}  // namespace mv::replica
