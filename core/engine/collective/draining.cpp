// mv_allreduce_drain(): a rank without data of its own takes part in what the others do next.

#include <utility>

#include "engine/collective/active.hpp"
#include "engine/collective/note.hpp"

namespace mv::collective {

void Group::drain(const base::OperationRef& call, Drained drained) {
  Operation taking_part;
  taking_part.draining = true;
  if (const base::Status refused = refusal(taking_part); !refused.ok()) return drained(refused);
  if (drain_) return drained(base::Status(MV_ESTATE, "another thread already waits in mv_allreduce_drain()"));
  const uint64_t op = begun_ + 1;
  const auto work = std::make_shared<base::WithdrawnBy>([this](mv_status code) {  // the others know that this rank drains: no undo
    drop_drain(base::Status(code, "withdrawn; this rank is still draining: it can only take part in the others' next all-reduce"));
  });
  drain_ = Drain{work, call->deadline(), std::move(drained), false, clock_.now()};
  call->begin(work);
  for (const auto& [rank, last] : closed_)
    if (last < op || last == kUnknown) return break_group(base::error(MV_EPEERLOST, "{} has left the group", name(rank)), true);
  if (std::exchange(draining_at_, op) != op) {
    tell_all(wire::GroupWord::Drains, [&](Note& note) { note.op = op; });
    const auto told = std::exchange(numbers_[op].told, {});
    for (const auto& [rank, signature] : told)
      if (!agrees(op, rank, signature)) return;
  }
  check_drained(op);
}

/// A rank drains at this number: it takes part in the operation of the others.
void Group::drains(uint64_t op, uint32_t from) {
  if (op <= begun_ && !numbers_.contains(op)) return;  // ended: other messages report that to the rank
  Numbered& numbered = numbers_[op];
  if (numbered.active == nullptr) {
    numbered.drainers.insert(from);
    return check_drained(op);
  }
  const wire::Signature mine = numbered.active->running.signature();
  if (can_be_drained(mine)) return tell_shape(from, op, *numbered.active);
  Operation theirs;
  theirs.kind = Kind::kDrain;
  disagree(op, static_cast<uint32_t>(setting_.rank), mine, from, sign(theirs, 0));
}

/// Ends this rank's drain if the next operation is known or has failed, or if all ranks drain.
void Group::check_drained(uint64_t op) {
  if (!drain_ || op != begun_ + 1) return;
  Numbered& numbered = numbers_[op];
  const bool finished = numbered.drainers.size() + 1 == members_.peers.size();
  if (!finished && numbered.failed.ok() && !numbered.shape) return;
  const Drained drained = std::move(std::exchange(drain_, std::nullopt)->drained);
  if (numbered.shape && numbered.failed.ok()) return drained(*numbered.shape);
  const base::Status why = numbered.failed;
  ++begun_;
  clear(numbered);
  numbers_.erase(op);
  if (!why.ok()) return drained(why);
  Shape shape;
  shape.finished = true;
  drained(shape);
}

void Group::drop_drain(const base::Status& why) {
  if (drain_) std::exchange(drain_, std::nullopt)->drained(why);
}

void Group::expire_drain(base::Nanos now) {
  if (!drain_ || drain_->deadline > now) return;
  if (!std::exchange(drain_->asked, true)) {
    drain_->deadline = now + kLastWord;
    return tell_all(wire::GroupWord::Asks, [&](Note& note) { note.op = begun_ + 1; });
  }
  std::string names;
  for (uint32_t rank = 0; rank < members_.peers.size(); ++rank)
    if (static_cast<int32_t>(rank) != setting_.rank && !numbers_[begun_ + 1].drainers.contains(rank)) names += (names.empty() ? "" : ", ") + name(rank);
  drop_drain(base::error(MV_ETIMEOUT, "the others neither reduce nor drain; this rank waits for {}. Call again: this rank can do nothing else in the group", names));
}

}  // namespace mv::collective
