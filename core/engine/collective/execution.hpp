#pragma once
// The execution of one rank's schedule of one operation, chunk by chunk.

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/payload.hpp"
#include "engine/collective/schedule.hpp"
#include "engine/collective/value.hpp"
#include "engine/rpc/pending.hpp"

namespace mv::collective {

/// An operation does not wait for the receivers of a value of at most this size, nor for those of the last bytes of a
/// larger one: it copies what they have not taken.
inline constexpr size_t kCopied = (128 << 10) + kTailBytes;

/// The few elements that follow those in a message's payload, see Value::head().
struct Tail {
  std::array<std::byte, kTailBytes> data;
  size_t size = 0;  ///< as the sender says; at most kTailBytes are in `data`
  std::span<const std::byte> bytes() const { return std::span(data).first(std::min(size, kTailBytes)); }
};

/// A chunk to be sent. A small one is to be copied before send_chunk() returns, and nobody needs to know when it is taken.
struct Outgoing {
  Range range;
  std::span<const std::byte> small;    ///< its bytes, if there is no payload
  base::PayloadRef payload = nullptr;  ///< those of a chunk of more than kSmallPayloadBytes
  uint64_t number = 0;                 ///< among the chunks of an execution
  bool awaited = false;                ///< this sender may wait until it is taken
  Tail tail = {};
  size_t bytes() const { return payload != nullptr ? payload->size() : small.size(); }
};

/// A chunk that has arrived. Its sender learns that it was taken when `asked` is finished.
struct Chunk {
  Range range;
  std::span<const std::byte> bytes;
  base::SinkRef staged;                        ///< holds the bytes, or is null
  std::shared_ptr<std::vector<std::byte>> own; ///< holds them if `staged` is null and keep() was called
  rpc::Asked asked;
  bool awaited = true;                         ///< its sender may wait until it is taken
  Tail tail = {};
  size_t size() const { return bytes.size() + tail.size; }
  void keep();
};

/// Executes a schedule. Received chunks are applied in the order of the steps, so equal inputs give equal bits. A chunk
/// is sent as soon as its elements are final and the window has room, so the send of a step may overlap with the
/// receives of that step and of earlier ones. Loop thread only.
class Execution {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Sends elements to a rank. If they have a payload, the owner calls sent() with the number once the rank has taken
    /// them: soon if it is `awaited`.
    virtual void send_chunk(int32_t to, const Outgoing& chunk) = 0;
    virtual void chunk_taken(const Chunk& chunk) = 0;
  };

  /// @param hosts   the host of each rank, see Layout; must outlive the execution. Empty: all ranks are on one
  /// @param manual  the caller reduces, see handed()
  Execution(Owner& owner, Value value, std::shared_ptr<const Schedule> schedule, int32_t rank, std::span<const int32_t> hosts, bool manual = false);
  Execution(Owner& owner, Value value, Schedule schedule, int32_t rank, std::span<const int32_t> hosts)
      : Execution(owner, std::move(value), std::make_shared<const Schedule>(std::move(schedule)), rank, hosts) {}
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution() { stop(); }

  /// Makes all progress that is possible now. MV_EPROTOCOL if a peer sent a chunk that the schedule does not expect.
  base::Status advance();
  /// All steps are received and sent, and no chunk in flight refers to the caller's memory.
  bool done() const;

  void received(int32_t from, Chunk chunk);
  void sent(uint64_t number);
  /// The destination of a chunk whose header has arrived; null if any memory will do.
  base::SinkRef place(int32_t from, const Range& range, size_t bytes);

  /// If manual: all values of a step have arrived, and the caller must reduce them into its own and then call
  /// resume().
  bool handed() const { return handed_; }
  void resume();
  /// Receives no further than this step until go_on() is called. Sends continue.
  void pause_at(size_t step) { pause_at_ = step; }
  bool paused() const { return receiving_ == pause_at_; }
  void go_on() { pause_at_ = kNoPause; }
  /// Sends the second chunk only after the first one was taken: the receiver may not expect the message yet.
  void send_first_alone() { first_alone_ = true; }

  /// The memory for values that are reduced manually: as many arrays as the value has. The caller owns the memory.
  void set_scratch(Value scratch) { scratch_ = std::move(scratch); }

  /// To be called when the execution is done: copies values that are elsewhere into the memory of the result.
  void bring() { value_.bring(); }

  /// Whether no more values will be reduced here: from now on, this rank only receives results.
  bool reduced() const { return receiving_ >= reductions_; }

  /// The rank whose elements this one waits for; kNone if there is none.
  int32_t awaited() const;
  /// A counter of progress: grows with every chunk that was received and used, or taken by its receiver.
  uint64_t moves() const { return moves_; }
  /// Releases all references to the caller's memory. Unused chunks that have arrived count as taken.
  void stop();

 private:
  struct Sent {
    uint64_t number;
    Range range;
    base::PayloadRef payload;
    size_t bytes;
    bool awaited;
    bool elsewhere;  ///< the bytes are not in the place of this range
  };
  struct Direct {
    Range range;
    base::SinkRef sink;
  };

  bool receive_more(base::Status* wrong);
  bool send_more();
  base::Status take(const Step& step, const Chunk& chunk);
  /// Reduces, or writes, received elements.
  void apply(const Step& step, const Range& range, const std::byte* theirs);
  bool is_final(const Range& range, size_t step) const;
  void vacate(const Range& range);
  void copy_rest();
  void emit(const Step& step, const Range& chunk, bool written_over);
  bool is_first(int32_t from) const { return !turn_ && !waiting_.contains(from); }
  /// Whether its owner must act before it receives more.
  bool waits_for_owner() const { return handed_ || paused(); }
  bool is_manual(const Step& step) const { return manual_ && step.arrival == Step::Arrival::kReduce; }

  Owner& owner_;
  Value value_;
  const std::shared_ptr<const Schedule> shared_schedule_;
  const Schedule& schedule_;
  const bool is_small_;      ///< the value, see kCopied
  const size_t reductions_;  ///< steps up to the last one that reduces
  const int32_t rank_;
  const std::span<const int32_t> hosts_;
  const bool manual_;
  Value scratch_;
  size_t receiving_ = 0, sending_ = 0;             ///< current steps
  uint64_t step_received_ = 0, step_sent_ = 0;     ///< elements done of them
  std::optional<Chunk> turn_;                      ///< arrived when it was its turn
  std::map<int32_t, std::deque<Chunk>> waiting_;   ///< by sender: arrived before their turn
  std::vector<Sent> lent_;                         ///< large chunks that are not taken yet
  size_t under_way_ = 0;                           ///< bytes of those
  uint64_t emitted_ = 0;                           ///< chunks so far
  std::vector<Direct> direct_;                     ///< being received into the caller's memory
  static constexpr size_t kNoPause = SIZE_MAX;
  size_t pause_at_ = kNoPause;
  bool handed_ = false, stopped_ = false, first_alone_ = false;
  uint64_t moves_ = 0;
};

}  // namespace mv::collective
