#pragma once
// What only the sources of Group share: an operation that is running.

#include <memory>
#include <utility>

#include "base/result.hpp"
#include "engine/collective/group.hpp"
#include "engine/collective/running.hpp"

namespace mv::collective {

/// After this time without progress, the awaited rank is notified: it may be at another operation.
inline constexpr base::Nanos kLookAfter = std::chrono::milliseconds(100);
/// How long a rank whose deadline has passed waits for the others to answer whether they have begun the operation.
inline constexpr base::Nanos kLastWord = std::chrono::seconds(1);

/// A running operation. When one of its messages has been taken, it is found again by its number.
struct Group::Active final : Execution::Owner, base::Work {
  Active(Group& group, uint64_t op, Operation operation, base::OperationRef call, Handed handed)
      : group(group), op(op), running(*this, group.setting_, std::move(operation), std::move(call), std::move(handed)) {}

  /// Breaks the group, because the other ranks count on this one.
  void withdraw(mv_status code) override {
    group.break_group(base::error(code, "{} has withdrawn operation {} of the group, {}", group.name(static_cast<uint32_t>(group.setting_.rank)), op,
                                describe(running.signature())), true);
  }

  void send_chunk(int32_t to, const Outgoing& chunk) override {
    const size_t bytes = chunk.payload->size();
    const auto rank = static_cast<uint32_t>(to);
    group.outstanding_.sent(rank, bytes);
    const auto taken = [weak = group.weak_from_this(), op = op, number = chunk.number, rank, bytes] {
      const auto group = weak.lock();  // the caller's thread may drop a closed group meanwhile
      if (group == nullptr) return;
      const bool keeps_up = group->outstanding_.taken(rank, bytes);
      const auto found = group->numbers_.find(op);
      if (found != group->numbers_.end() && found->second.active != nullptr) {
        found->second.active->running.execution().sent(number);
        group->settle(op);
      }
      if (keeps_up) group->keep_up();
    };
    group.send_collect(rank, op, running.signature(), chunk, taken);
  }
  void chunk_taken(const Chunk& chunk) override {
    if (group.forgotten_) return;
    chunk.awaited ? group.server_.finish(chunk.asked) : group.server_.finish_later(chunk.asked, group.clock_.now());
  }

  Group& group;
  const uint64_t op;
  const base::Nanos since = group.clock_.now();
  base::Nanos begun{0}, reduced{0};  ///< reduced: see Execution::reduced(); 0: not yet, or not recorded
  enum class Handover { kNotYet, kUnderWay, kDone } handover = Handover::kNotYet;  ///< to the Reducer
  bool held = false;  ///< it is done, and waits until no rank is far behind
  bool busy = false;  ///< against re-entry: a send to a lost peer calls `taken` before it returns
  Running running;
};

}  // namespace mv::collective
