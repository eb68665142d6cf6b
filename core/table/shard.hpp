#pragma once
// One server's part of a dense table.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "table/spec.hpp"

namespace mv::table {

/// Values of a contiguous range of rows, under one lock a stripe. Element and row numbers are the shard's own, from 0.
/// Any thread; every call is atomic per stripe, and per row where rows fit into stripes. Callers have checked ranges.
class Shard {
 public:
  /// MV_ENOMEM if the memory is not to be had. All zeros; pages are touched when first written.
  static base::Result<std::shared_ptr<Shard>> make(const Spec& spec, Range rows);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const Range& rows() const { return rows_; }
  uint64_t elements() const { return rows_.count * cols_; }

  void add(uint64_t first, uint64_t count, const std::byte* values);
  void set(uint64_t first, uint64_t count, const std::byte* values);
  void read(uint64_t first, uint64_t count, std::byte* out) const;
  /// Repeated rows add up.
  void add_rows(std::span<const int64_t> rows, const std::byte* values);
  /// Of repeated rows the last one stays.
  void set_rows(std::span<const int64_t> rows, const std::byte* values);
  void read_rows(std::span<const int64_t> rows, std::byte* out) const;

  /// True once the table was destroyed; those who still hold the shard must not use it as a table any more.
  std::atomic<bool> destroyed{false};

 private:
  Shard(const Spec& spec, Range rows, std::byte* memory);

  /// Calls work(first, count, offset) for each stripe's share of a range, under the stripe's lock; offset in elements.
  template <typename Work>
  void for_stripes(uint64_t first, uint64_t count, Work work) const;
  /// Calls work(begin, count) for each run of row ids that lie in one stripe, under its lock. For rows that fit into one.
  template <typename Work>
  void for_row_runs(std::span<const int64_t> rows, Work work) const;

  std::byte* at(uint64_t element) const { return memory_ + element * element_bytes_; }

  const Range rows_;
  const uint64_t cols_, element_bytes_, stripe_elements_;
  const mv_dtype dtype_;
  std::byte* const memory_;
  mutable std::vector<std::mutex> locks_;
};

}  // namespace mv::table
