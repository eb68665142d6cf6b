#pragma once
// The operations of a simulated group and their expected results, derived from the group's number, which all ranks know.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/collective/operation.hpp"

namespace mv::sim {

/// First operations of all kinds that every rank makes; then all-reduces, a different number on each rank; then, after the number at which
/// all ranks drain, one more by every rank.
class Script {
 public:
  Script(uint64_t seed, size_t ranks) : seed_(seed), ranks_(ranks) {}
  size_t ranks() const { return ranks_; }
  size_t common() const { return 3 + number(1) % 5; }
  size_t steps(size_t rank) const { return number(2 + rank) % 4; }
  size_t longest() const;
  uint64_t number(uint64_t of) const;

 private:
  uint64_t seed_;
  size_t ranks_;
};

/// One operation of one rank.
class Work {
 public:
  Work(const Script& script, size_t rank, size_t at, bool drains);
  /// More than one only if it sends and receives.
  std::vector<collective::Operation> operations() const;
  const collective::Operation& operation() const { return operation_; }
  bool drains() const { return operation_.draining; }
  /// "", or the difference from the expected result.
  std::string check() const;
  /// "", or the part of a shape that does not belong to this operation.
  std::string check_shape(const collective::Shape& shape) const;
  uint64_t digest() const;

 private:
  void lay_out(std::vector<uint64_t> counts);
  void lay_out_pairs(uint64_t size);
  uint64_t pair_count(size_t from, size_t to) const;
  int64_t given_to(size_t from, size_t to, uint64_t element) const;
  std::string check_pairs() const;
  int64_t given(size_t rank, size_t array, uint64_t element) const;
  int64_t expected(size_t array, uint64_t element) const;
  bool contributes(size_t rank) const;
  int64_t value_at(const std::byte* data, uint64_t element) const;
  void set(std::byte* data, uint64_t element, int64_t value) const;

  const Script script_;
  const size_t rank_, at_;
  collective::Operation operation_;
  mv_dtype dtype_ = MV_I64;
  std::vector<std::vector<std::byte>> in_, out_;
  uint64_t contributors_ = 0;
  collective::Operation send_;  ///< besides a kRecv
  int64_t source_ = -1;
};

}  // namespace mv::sim
