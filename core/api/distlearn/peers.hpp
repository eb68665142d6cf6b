#pragma once
// Peers: the ranks that train together, as a strategy uses them: operations that a signal may interrupt, and draining
// until no rank steps any more.

#include <functional>
#include <initializer_list>
#include <vector>

#include "api/distlearn/arrays.hpp"
#include "api/distlearn/places.hpp"
#include "api/distlearn/stages.hpp"
#include "api/group/group.hpp"
#include "api/node/node.hpp"
#include "base/clock.hpp"

namespace mv::distlearn {

/// What this rank sent, and what an all-reduce of everything in every step would have sent.
struct Meter {
  uint64_t steps = 0;
  uint64_t operations = 0;
  uint64_t payload_bytes = 0;  ///< given to the group's operations by this rank
  uint64_t dense_bytes = 0;    ///< of its arrays, over all steps
};

/// Belongs to one strategy, whose calls are made one after another.
///
/// A call that a signal ends with MV_EINTR continues in the caller's memory. It must be repeated with the same
/// arguments, and does nothing twice. To get the memory back without repeating the call, call withdraw().
class Peers {
 public:
  Peers(api::Node& node, api::GroupRef group);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  uint64_t rank() const { return rank_; }
  uint64_t size() const { return size_; }

  bool is_interrupted() const { return stages_.is_interrupted(); }
  /// Runs the stages of one call of the user, see Stages. Each operation has `timeout`.
  base::Status carry_out(const char* name, std::initializer_list<Stages::Stage> stages, base::Nanos timeout) {
    timeout_ = timeout;
    return stages_.carry_out(name, stages);
  }

  /// What the arrays of the next calls are: see collective::Operation::label. Draining ranks have none.
  void set_label(uint32_t label) { label_ = label; }

  /// Where the arrays of a call are. MV_ESTATE if it repeats an interrupted one whose arrays were in other `places`.
  base::Result<Places> places_of(const Arrays& arrays, const Places& places) const;
  const api::FindDevice& find_device() const { return node_.devices().find; }

  // For a stage that does nothing else: after an interruption the stage runs again. Arrays may be on devices.

  /// Sums in place, or averages over the contributors; contributors() has their number.
  base::Status allreduce(const Arrays& arrays, math::Reduction reduction, bool draining = false);
  base::Status broadcast(const Arrays& arrays, uint64_t root);
  /// Gathers the same number of bytes from each rank, in the order of ranks.
  base::Status allgather(const std::vector<std::byte>& mine, std::vector<std::byte>& all);
  base::Status allgather_number(int64_t mine);
  const std::vector<int64_t>& numbers() const { return numbers_; }

  /// Returns a draining rank's part in an operation of the others: arrays of the same shape, or
  /// none for neutral values.
  using Fill = std::function<base::Result<Arrays>(const collective::Shape&)>;
  /// Receives the result.
  using Take = std::function<base::Status(const Arrays&)>;
  /// Takes part in the others' all-reduces, without counting as a contributor, until no rank makes any more. `fill` is
  /// also called then, with Shape::finished.
  base::Status drain(const Fill& fill, const Take& take);
  /// Takes part in one of these; `finished` is set if there was none any more.
  base::Status drain_once(const Fill& fill, bool* finished);

  uint64_t contributors() const { return contributors_; }

  /// Starts an all-reduce in the background. One at a time; finish_allreduce() waits for its end.
  base::Status start_allreduce(const Arrays& arrays, math::Reduction reduction);
  base::Status finish_allreduce();
  bool is_under_way() const { return background_ != nullptr; }

  /// Gives up an interrupted operation and the one in the background; the group is broken if there was any.
  void withdraw();

  Meter meter;

 private:
  base::Status run(collective::Operation operation);
  api::Started start(collective::Operation operation, const api::CallOptions& options);
  base::Status wait(api::CallRef& call);
  Arrays neutral(const collective::Shape& shape);

  api::Node& node_;
  const api::GroupRef group_;
  uint64_t rank_, size_;
  base::Nanos timeout_{0};
  uint32_t label_ = 0;
  Stages stages_;
  api::CallRef pending_, background_;
  uint64_t contributors_ = 0;
  std::vector<int64_t> numbers_;
  int64_t number_ = 0;
  Arrays draining_;  ///< in the operation in progress
  std::vector<std::vector<std::byte>> neutral_;
};

}  // namespace mv::distlearn
