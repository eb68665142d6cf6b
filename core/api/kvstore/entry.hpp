#pragma once
// Entry: a key of a store.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/kvstore/compression.hpp"
#include "api/kvstore/residuals.hpp"
#include "api/node/node.hpp"
#include "tensor/device.hpp"
#include "tensor/tensor.hpp"

namespace mv::kvstore {

using tensor::Tensor;

struct Entry : std::enable_shared_from_this<Entry> {
  api::TableRef table;
  std::string name;
  mv_dtype dtype = MV_F32;
  bool row_sparse = false;
  bool rejects_nonfinite = false;    ///< whether its table does
  bool is_ready = false;             ///< its init() has returned; guarded by the store's mutex
  std::atomic<bool> updates{false};  ///< the key is known to have an optimizer
  std::atomic<bool> pushed{false};
  std::atomic<bool> has_left{false};  ///< a codec, of this run or an earlier one, may have left residuals
  tensor::Shape shape;
  shard::SpecRef spec;               ///< the table's, as it was created
  tensor::Device* device = nullptr;  ///< whose memory has the values; null: the host's, or that of the servers
  std::mutex merging;                ///< guards merged and residuals
  std::vector<std::byte> merged;     ///< buffer for the sum over devices
  Residuals residuals;

  // See updates.hpp.
  std::atomic<uint64_t> queued{0}, updated{0};  ///< values given to the updater callback, and values that it has processed
  std::mutex telling;
  base::Status untold;  ///< the error of an update that no caller waited for

  /// Codecs handle dense floats only.
  bool can_compress() const { return !row_sparse && tensor::is_floating(dtype); }
  /// The size of a sender's residual.
  size_t residual_bytes() const { return shape.count() * tensor::dtype_bytes(tensor::storage_dtype(dtype)); }
  /// "row-sparse f32 (10, 4)", for messages.
  std::string text() const;
};
using EntryRef = std::shared_ptr<Entry>;
/// The entries of one call, shared by calls that name the same keys.
using Entries = std::vector<EntryRef>;
using EntriesRef = std::shared_ptr<const Entries>;

}  // namespace mv::kvstore
