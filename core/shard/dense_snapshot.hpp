#pragma once
// A dense shard as it was: stripes that change before they are read are copied first.

#include <memory>
#include <vector>

#include "shard/dense.hpp"
#include "shard/snapshot.hpp"

namespace mv::shard {

class DenseSnapshot final : public Snapshot {
 public:
  /// Every stripe learns of it, one after the other.
  DenseSnapshot(std::shared_ptr<DenseShard> shard, DenseShard::ModelRef model, std::vector<base::Memory> aside);
  ~DenseSnapshot() override;

  uint64_t rows() const override { return shard_->rows().count; }
  size_t states() const override { return arrays_.size() - 1; }
  Rows next() override;

  /// Keeps elements first .. end - 1, of one stripe; under its lock. Many of them are worth an expect() before.
  void set_aside(uint64_t first, uint64_t end);
  void expect(uint64_t first, uint64_t end);

 private:
  uint64_t stripe_elements(size_t stripe) const;
  void copy(uint64_t first, uint64_t end, uint64_t to);

  const std::shared_ptr<DenseShard> shard_;
  const DenseShard::ModelRef model_;      ///< keeps the states
  std::vector<const std::byte*> arrays_;  ///< values, then states
  const std::vector<base::Memory> aside_;  ///< by array: as large as it is, but only what was set aside takes memory
  std::vector<std::vector<std::byte>> out_;  ///< by array: what next() gives
  uint64_t row_ = 0;
};

}  // namespace mv::shard
