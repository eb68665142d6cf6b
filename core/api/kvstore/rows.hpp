#pragma once
// Rows of keys: the rows that a tensor of ids names, and the rows that a push brings.

#include <cstdint>
#include <span>
#include <vector>

#include "api/kvstore/entry.hpp"

namespace mv::kvstore {

/// Rows of a push, as its table takes them. Ids may repeat; their rows add up.
struct PushedRows {
  std::vector<int64_t> ids;
  std::vector<std::byte> joined;       ///< the values, if they come from several tensors
  const std::byte* values = nullptr;   ///< `joined`, or a tensor's own memory
};

/// Whether a push must name the rows that it changes.
bool goes_by_rows(const Entry& entry, std::span<const Tensor> values);
/// MV_ERANGE for a row-sparse tensor with a row that the key does not have: its ids were overwritten.
base::Status check_held(const Entry& entry, const Tensor& value);
/// The rows of all tensors, one tensor after another; all rows of dense tensors.
base::Result<PushedRows> rows_of(const Entry& entry, std::span<const Tensor> values);

/// The same as one row-sparse tensor with its own memory, on the device or with null on the host; each row occurs once.
base::Result<Tensor> merge_rows(tensor::Heap& heap, tensor::Device* device, const Entry& entry, std::span<const Tensor> values);

/// The ids in a dense tensor of any dtype and shape: ascending, each once. MV_ERANGE for an id outside 0 .. height - 1,
/// MV_EINVAL for one that is not a whole number.
base::Result<std::vector<int64_t>> read_ids(const Tensor& ids, int64_t height);

}  // namespace mv::kvstore
