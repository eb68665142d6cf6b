#pragma once
// The expected content of a merging table: a function of the number of merged rounds, and of the workers with a part in them.

#include <span>
#include <string>
#include <vector>

#include "shard/shard.hpp"

namespace mv::sim {

/// One worker's part of a round: the same in every run, so that it need not be stored.
struct RoundPart {
  bool all = true;
  std::vector<int64_t> rows;   ///< unless all; each once
  std::vector<double> values;  ///< of these rows, or of all
};

/// By worker: the rounds of each of its lives.
using RoundParts = std::vector<std::vector<shard::Range>>;

/// All values are whole numbers, and all operations on them are exact.
class RoundModel {
 public:
  RoundModel(shard::Spec spec, uint64_t seed, size_t servers) : spec_(std::move(spec)), seed_(seed), servers_(servers) {}

  const shard::Spec& spec() const { return spec_; }
  /// Whether it covers all values or some rows depends on the round, not on the worker.
  RoundPart part(size_t worker, uint64_t round) const;
  /// The rows of the table that this server holds, ascending.
  std::vector<int64_t> rows_of(size_t server) const;

  /// Whether neighbouring elements of a server's rows equal the result of some number of rounds: returns the smallest such number in least
  /// .. most, or UINT64_MAX.
  /// @param values  of all of these rows; `some` of them are compared
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
