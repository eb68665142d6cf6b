#pragma once
// Carries out one rank's schedule of one operation, chunk by chunk.

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/payload.hpp"
#include "engine/collective/schedule.hpp"
#include "engine/collective/value.hpp"
#include "engine/rpc/pending.hpp"

namespace mv::collective {

/// A chunk that has come. Whoever sent it hears that it was taken once `asked` is finished.
struct Chunk {
  Range range;
  std::span<const std::byte> bytes;
  base::SinkRef staged;                        ///< holds the bytes; or null:
  std::shared_ptr<std::vector<std::byte>> own; ///< then this does, once keep() was called
  rpc::Asked asked;
  void keep();
};

/// Chunks are received in the order of the schedule's steps, so that equal inputs give equal bits, and sent as soon as what they are made of is
/// final and there is room: a step may be sent from while it or the one before it is still being received. Loop thread only.
class Execution {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Sends elements to a rank; sent() is to follow for each, with its number, once they have been taken there.
    virtual void send_chunk(int32_t to, const Range& range, const base::PayloadRef& payload, uint64_t number) = 0;
    virtual void chunk_taken(const rpc::Asked& asked) = 0;
  };

  /// @param by_hand  the caller reduces: see handed()
  Execution(Owner& owner, Value value, Schedule schedule, int32_t rank, bool by_hand = false);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution() { stop(); }

  /// Does what can be done now. MV_EPROTOCOL where a peer sent what the schedule does not expect.
  base::Status advance();
  /// Everything has been sent, taken and received.
  bool done() const;

  void received(int32_t from, Chunk chunk);
  void sent(uint64_t number);
  /// Where a chunk that is about to come goes; null: nowhere in particular.
  base::SinkRef place(int32_t from, const Range& range, size_t bytes);

  /// By hand: the values that are to be reduced into the caller's, all of them; resume() once they have been.
  bool handed() const { return handed_; }
  void resume();
  /// Where a step's values arrive that are reduced by hand: as many arrays as the value has. Their memory is the owner's.
  void set_scratch(Value scratch) { scratch_ = std::move(scratch); }

  /// Once it is done: the whole value is where it belongs.
  void bring() { value_.bring(); }

  /// The rank whose elements are waited for, kNone if none's.
  int32_t awaited() const;
  /// Grows whenever something came or was taken.
  uint64_t moves() const { return moves_; }
  /// Nothing refers to the caller's memory any more. What has come and was not used counts as taken.
  void stop();

 private:
  struct Sent {
    uint64_t number;
    Range range;
    base::PayloadRef payload;
    size_t bytes;
    bool elsewhere;  ///< than where this range is written
  };
  struct Direct {
    Range range;
    base::SinkRef sink;
  };

  bool receive_more(base::Status* wrong);
  bool send_more();
  base::Status take(const Step& step, const Chunk& chunk);
  bool is_final(const Range& range, size_t step) const;
  void vacate(const Range& range);
  void emit(const Step& step, const Range& chunk, bool written_over);
  bool by_hand(const Step& step) const { return by_hand_ && step.arrival == Step::Arrival::kReduce; }

  Owner& owner_;
  Value value_;
  const Schedule schedule_;
  const int32_t rank_;
  const bool by_hand_;
  Value scratch_;
  size_t receiving_ = 0, sending_ = 0;             ///< steps
  uint64_t step_received_ = 0, step_sent_ = 0;     ///< elements of them
  std::map<int32_t, std::deque<Chunk>> waiting_;   ///< by sender: came before their turn
  std::vector<Sent> lent_;                         ///< large ones that were not taken yet
  size_t under_way_ = 0;                           ///< bytes of those
  uint64_t emitted_ = 0;                           ///< chunks so far
  std::vector<Direct> direct_;                     ///< on their way into the caller's memory
  bool handed_ = false, stopped_ = false;
  uint64_t moves_ = 0;
};

}  // namespace mv::collective
