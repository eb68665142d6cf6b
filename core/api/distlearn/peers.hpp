#pragma once
// The ranks that train together, as a strategy sees them: operations that a signal may interrupt, and the end of those that still step.

#include <functional>
#include <initializer_list>
#include <vector>

#include "api/distlearn/arrays.hpp"
#include "api/distlearn/stages.hpp"
#include "api/group/group.hpp"
#include "api/node/node.hpp"
#include "base/clock.hpp"

namespace mv::distlearn {

/// What went over the wire, beside what an all-reduce of everything in every step would have been.
struct Meter {
  uint64_t steps = 0;
  uint64_t operations = 0;
  uint64_t payload_bytes = 0;  ///< that this rank has given to the group's operations
  uint64_t dense_bytes = 0;    ///< of its arrays, in all steps
};

/// Of one strategy, whose calls are made one after the other.
///
/// A call that a signal ends with MV_EINTR goes on, in the caller's memory: it is to be made again, with the same arguments, and does
/// nothing twice. Whoever wants that memory back without calls withdraw().
class Peers {
 public:
  Peers(api::Node& node, api::GroupRef group);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  uint64_t rank() const { return rank_; }
  uint64_t size() const { return size_; }

  /// The stages of one call of the user, see Stages; each operation has `timeout`.
  base::Status carry_out(const char* name, std::initializer_list<Stages::Stage> stages, base::Nanos timeout) {
    timeout_ = timeout;
    return stages_.carry_out(name, stages);
  }

  // Inside of a stage, which does nothing else: where the operation was interrupted, it comes here again.

  /// Sums in place, or averages over those that contribute; their number is in contributors().
  base::Status allreduce(const Arrays& arrays, math::Reduction reduction, bool draining = false);
  base::Status broadcast(const Arrays& arrays, uint64_t root);
  /// The same count of bytes of each rank, in the order of ranks.
  base::Status allgather(const std::vector<std::byte>& mine, std::vector<std::byte>& all);
  base::Status allgather_number(int64_t mine);
  const std::vector<int64_t>& numbers() const { return numbers_; }

  /// What a draining rank puts into the others' operation: arrays of its own, of the shape that they have; nothing: what changes nothing.
  using Fill = std::function<Arrays(const collective::Shape&)>;
  /// What it does with the result.
  using Take = std::function<void(const Arrays&)>;
  /// Takes part in the others' all-reduces, without counting as a contributor, until nobody makes any more. `fill` also hears of that, by
  /// Shape::finished.
  base::Status drain(const Fill& fill, const Take& take);
  /// One of those; `finished` tells that there was none any more.
  base::Status drain_once(const Fill& fill, bool* finished);

  uint64_t contributors() const { return contributors_; }

  /// An all-reduce that goes on in the background. One at a time: it is over after finish().
  base::Status start_allreduce(const Arrays& arrays, math::Reduction reduction);
  base::Status finish_allreduce();
  bool is_under_way() const { return background_ != nullptr; }

  /// What a signal has left, or is under way in the background, is given up; the group is broken then.
  void withdraw();

  Meter meter;

 private:
  base::Status run(collective::Operation operation);
  base::Status wait(api::CallRef& call);
  Arrays neutral(const collective::Shape& shape);

  api::Node& node_;
  const api::GroupRef group_;
  uint64_t rank_, size_;
  base::Nanos timeout_{0};
  Stages stages_;
  api::CallRef pending_, background_;
  uint64_t contributors_ = 0;
  std::vector<int64_t> numbers_;
  int64_t number_ = 0;
  Arrays draining_;  ///< in the operation under way
  std::vector<std::vector<std::byte>> neutral_;
};

}  // namespace mv::distlearn
