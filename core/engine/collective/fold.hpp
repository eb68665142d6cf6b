#pragma once
// Folding of a group whose size is not a power of two: the first ranks form pairs, and the higher rank of each pair
// takes part for both.

#include <bit>
#include <cstdint>
#include <vector>

namespace mv::collective {

class Fold {
 public:
  explicit Fold(int32_t size)
      : ranks_(static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(size)))), pairs_(size - ranks_) {}

  int32_t ranks() const { return ranks_; }  ///< ranks that take part: a power of two
  bool in_pair(int32_t rank) const { return rank < 2 * pairs_; }
  bool stands_aside(int32_t rank) const { return in_pair(rank) && rank % 2 == 0; }
  int32_t partner(int32_t rank) const { return rank ^ 1; }
  /// The number of a rank among those that take part, and the inverse.
  int32_t number(int32_t rank) const { return in_pair(rank) ? rank / 2 : rank - pairs_; }
  int32_t rank(int32_t number) const { return number < pairs_ ? 2 * number + 1 : number + pairs_; }

 private:
  int32_t ranks_;
  int32_t pairs_;
};

}  // namespace mv::collective
