#pragma once
// A snapshot of a dense shard, by copy-on-write of pieces of stripes.

#include <memory>
#include <vector>

#include "shard/dense.hpp"
#include "shard/snapshot.hpp"

namespace mv::shard {

class DenseSnapshot final : public Snapshot {
 public:
  /// Registers with the stripes one after the other, under the lock of each.
  DenseSnapshot(std::shared_ptr<DenseShard> shard, DenseShard::ModelRef model, std::vector<base::Memory> aside);
  ~DenseSnapshot() override;

  uint64_t rows() const override { return shard_->rows().count; }
  size_t states() const override { return arrays_.size() - 1; }
  Rows next() override;

  /// Copies elements first .. end - 1 of one stripe, under its lock. For many elements, call expect() first.
  void set_aside(uint64_t first, uint64_t end);
  void expect(uint64_t first, uint64_t end);

 private:
  uint64_t stripe_elements(size_t stripe) const;
  void copy(uint64_t first, uint64_t end, uint64_t to);

  const std::shared_ptr<DenseShard> shard_;
  const DenseShard::ModelRef model_;      ///< owns the states
  std::vector<const std::byte*> arrays_;  ///< values, then states
  const std::vector<base::Memory> aside_;  ///< one for each array, of the same size; only copied pages take memory
  std::vector<std::vector<std::byte>> out_;  ///< one for each array: the rows of next()
  uint64_t row_ = 0;
};

}  // namespace mv::shard
