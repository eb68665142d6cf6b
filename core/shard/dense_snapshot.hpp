#pragma once
// A snapshot of a dense shard, by copy-on-write of pieces of stripes.

#include <memory>
#include <vector>

#include "shard/dense.hpp"
#include "shard/snapshot.hpp"

namespace mv::shard {

class DenseSnapshot final : public Snapshot {
 public:
  /// What a worker last got.
  struct Got {
    Worker worker;
    const std::byte* memory;
    base::Memory aside;          ///< of the same size; only copied pages take memory
    std::vector<uint64_t> kept;  ///< by stripe, under its lock: like DenseShard::Stripe::kept
  };

  /// Registers with the stripes one after the other, under the lock of each.
  DenseSnapshot(std::shared_ptr<DenseShard> shard, DenseShard::ModelRef model, std::vector<base::Memory> aside, std::vector<Got> got);
  ~DenseSnapshot() override;

  uint64_t rows() const override { return shard_->rows().count; }
  size_t states() const override { return arrays_.size() - 1; }
  Rows next() override;

  /// Copies elements first .. end - 1 of one stripe, under its lock. For many elements, call expect() first.
  void set_aside(uint64_t first, uint64_t end);
  void expect(uint64_t first, uint64_t end);
  /// Copies what the worker last got of these elements of one stripe, under its lock, before it gets them again.
  void set_got_aside(size_t stripe, Worker worker, uint64_t first, uint64_t count);

 private:
  uint64_t stripe_elements(size_t stripe) const;
  template <typename Copy>
  void for_stripes(bool last, const Copy& copy);
  void copy(const std::byte* memory, const std::byte* aside, uint64_t kept, uint64_t first, uint64_t end, std::byte* out) const;
  Rows next_got();

  const std::shared_ptr<DenseShard> shard_;
  const DenseShard::ModelRef model_;      ///< owns the states
  std::vector<const std::byte*> arrays_;  ///< values, then states
  const std::vector<base::Memory> aside_;  ///< one for each array, of the same size; only copied pages take memory
  std::vector<Got> got_;
  std::vector<std::vector<std::byte>> out_;  ///< one for each array: the rows of next()
  std::vector<std::byte> got_out_;
  uint64_t row_ = 0, count_ = 0;  ///< the rows that next() has returned last
  size_t next_got_ = 0;           ///< the next worker for these rows
};

}  // namespace mv::shard
