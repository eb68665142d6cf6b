#pragma once
// What a merging table must hold: a function of how many rounds are merged, and of whose parts are in them.

#include <span>
#include <string>
#include <vector>

#include "shard/shard.hpp"

namespace mv::sim {

/// One worker's part of a round: the same in every run, so that it need not be kept.
struct RoundPart {
  bool all = true;
  std::vector<int64_t> rows;   ///< unless all; each once
  std::vector<double> values;  ///< of these, or of all
};

/// By worker: the rounds of each of its lives.
using RoundParts = std::vector<std::vector<shard::Range>>;

/// All values are whole numbers, and all that is done to them is exact.
class RoundModel {
 public:
  RoundModel(shard::Spec spec, uint64_t seed, size_t servers) : spec_(std::move(spec)), seed_(seed), servers_(servers) {}

  const shard::Spec& spec() const { return spec_; }
  /// Of whole values or of rows is a round, not a part.
  RoundPart part(size_t worker, uint64_t round) const;
  /// The rows of the table that this server holds, ascending.
  std::vector<int64_t> rows_of(size_t server) const;

  /// Whether some neighbouring elements of a server's rows are as some number of rounds leaves them: the smallest such number in
  /// least .. most, or UINT64_MAX.
  /// @param values  of all of these rows; `some` of them are looked at
  /// @param parts  by worker: the rounds in which it has a part
  uint64_t rounds_in(size_t server, std::span<const double> values, shard::Range some, const RoundParts& parts, uint64_t least, uint64_t most) const;

 private:
  struct State {
    std::vector<double> values, momentum;
  };
  void merge(State& state, size_t server, const RoundParts& parts, uint64_t round) const;

  const shard::Spec spec_;
  const uint64_t seed_;
  const size_t servers_;
};

}  // namespace mv::sim
