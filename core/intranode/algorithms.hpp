#pragma once
// The algorithms of an all-reduce in shared memory. All of them give the same bits, because each element is always
// reduced in the order of the ranks. Which one is fastest depends on the processor's caches: choices.hpp measures it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/collective/trial.hpp"
#include "intranode/shared_region.hpp"

namespace mv::intranode {

enum class Algorithm : uint8_t {
  kInline,        ///< values lie beside their header, and every rank reduces all of them
  kShares,        ///< each rank reduces its share, and copies the other shares from their owners
  kShares16K,     ///< the same in blocks of 16 KiB
  kWholeStaged,   ///< two ranks: each copies its values to where the other one reads them, and reduces everything
  kWholeStaged16K,
  kWholeStaged256K,
  kWholeDirect,   ///< the same, but tensors that are not overwritten are read in place, without a copy
};
inline constexpr size_t kAlgorithms = 7;

struct AlgorithmTraits {
  const char* name;
  size_t block_bytes;
  bool whole = false;   ///< each rank reduces everything; two ranks only
  bool direct = false;  ///< if whole: values are read in place where possible
};
const AlgorithmTraits& traits(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);
/// "inline, shares, ..."
std::string algorithm_names();

/// Values up to this size always lie beside their header. One hand-off is then cheaper than two on any processor, and
/// the ranks together read less than half of a level 1 cache.
inline constexpr size_t kAlwaysInline = size_t{2} << 10;

/// A class of all-reduces for which the same algorithm is best. Values that may lie beside their header are classified
/// by their size only, because a rank chooses their algorithm before it knows the arrays of the others.
class SizeClass {
 public:
  static constexpr size_t kCount = 72;

  /// @param bytes     more than kAlwaysInline
  /// @param tensors   the values and results of all ranks can be read in place by the others
  /// @param in_place  some rank's result overwrites its values
  SizeClass(size_t bytes, bool tensors, bool in_place);
  static SizeClass at(size_t index) { return SizeClass(index); }

  size_t index() const { return index_; }
  /// The greatest size of the class.
  size_t most() const { return size_t{1} << (kSmallest + index_ / kKinds); }
  /// Whether the size alone decides the class, because the algorithm may be kInline.
  static bool is_small(size_t bytes) { return bytes <= kInlineRoom; }
  bool tensors() const { return (index_ & 1) != 0; }
  bool in_place() const { return (index_ & 2) != 0; }
  /// "1M tensors in-place"; sizes are upper limits.
  std::string name() const;

 private:
  static constexpr size_t kKinds = 4;
  static constexpr size_t kSmallest = 12, kSizes = kCount / kKinds;  ///< 4 KiB; the last class is unlimited
  explicit SizeClass(size_t index) : index_(index) {}
  size_t index_;
};

/// The algorithms to try. The first one is the best guess, which is used if there is no trial.
class Candidates {
 public:
  Candidates(const SizeClass& of, size_t ranks);
  std::span<const Algorithm> all() const { return {algorithms_.data(), count_}; }
  Algorithm operator[](size_t i) const { return algorithms_[i]; }
  size_t size() const { return count_; }
  std::optional<size_t> find(Algorithm algorithm) const;

 private:
  void add(Algorithm algorithm);
  std::array<Algorithm, collective::Trial::kMostAlternatives> algorithms_{};
  size_t count_ = 0;
};

/// Whether all-reduces of this class can use the algorithm.
bool fits(Algorithm algorithm, const SizeClass& of, size_t ranks);

}  // namespace mv::intranode
