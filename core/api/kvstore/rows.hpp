#pragma once
// Rows of keys: which are meant by a tensor of ids, and which a push brings.

#include <cstdint>
#include <span>
#include <vector>

#include "api/kvstore/entry.hpp"

namespace mv::kvstore {

/// Rows of a push, as its table takes them; ids may repeat, their rows add up.
struct PushedRows {
  std::vector<int64_t> ids;
  std::vector<std::byte> joined;       ///< the values, where they come from several tensors
  const std::byte* values = nullptr;   ///< those, or a tensor's own
};

/// Whether a push has to name the rows that it changes.
bool goes_by_rows(const Entry& entry, std::span<const Tensor> values);
/// All tensors' rows, one behind the other; of dense ones all of them.
base::Result<PushedRows> rows_of(const Entry& entry, std::span<const Tensor> values);

/// The same as one row-sparse tensor of its own memory, each row once.
base::Result<Tensor> merge_rows(tensor::Heap& heap, const Entry& entry, std::span<const Tensor> values);

/// The ids in a dense tensor of any dtype and shape: ascending, each once. MV_ERANGE for one outside of 0 .. height - 1, MV_EINVAL
/// for one that is no whole number.
base::Result<std::vector<int64_t>> read_ids(const Tensor& ids, int64_t height);

}  // namespace mv::kvstore
