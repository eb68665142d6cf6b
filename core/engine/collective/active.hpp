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
  Active(Group& group, uint64_t op, Operation&& operation, base::OperationRef call, Handed handed)
      : group(group), op(op), running(*this, group.setting_, group.planner_, std::move(operation), std::move(call), std::move(handed)) {}

  /// Breaks the group, because the other ranks count on this one.
  void withdraw(mv_status code) override {
    group.break_group(base::error(code, "{} has withdrawn operation {} of the group, {}", group.name(static_cast<uint32_t>(group.setting_.rank)), group.shown(op),
                                describe(running.signature())), true);
  }

  void send_chunk(int32_t to, const Outgoing& chunk) override {
    const auto rank = static_cast<uint32_t>(to);
    group.outstanding_.sent(rank, chunk.bytes());
    group.send_collect(rank, op, running.signature(), chunk, std::make_shared<Taken>(group, op, rank, chunk));
  }
  void chunk_taken(const Chunk& chunk) override {
    if (group.forgotten_) return;
    chunk.awaited ? group.server_.finish(chunk.asked) : group.server_.finish_later(chunk.asked, group.clock_.now());
  }

  /// A chunk of an operation.
  class Taken final : public Sender::Receipt {
   public:
    Taken(Group& group, uint64_t op, uint32_t rank, const Outgoing& chunk)
        : group_(group.weak_from_this()), op_(op), number_(chunk.number), bytes_(chunk.bytes()), rank_(rank), is_small_(chunk.payload == nullptr) {}
    void taken() override {
      const auto group = group_.lock();  // the caller's thread may drop a closed group meanwhile
      if (group == nullptr) return;
      const bool keeps_up = group->outstanding_.taken(rank_, bytes_);
      const auto found = is_small_ ? group->numbers_.end() : group->numbers_.find(op_);
      if (found != group->numbers_.end() && found->second.active != nullptr) {
        found->second.active->running.execution().sent(number_);
        group->settle(op_);
      }
      if (keeps_up) group->keep_up();
    }

   private:
    const std::weak_ptr<Group> group_;
    const uint64_t op_, number_;
    const size_t bytes_;
    const uint32_t rank_;
    const bool is_small_;
  };

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
