#include "api/kvstore/layout.hpp"

#include <string_view>

#include "base/mix.hpp"
#include "shard/updater/updater.hpp"

namespace mv::kvstore {

namespace {

/// From so many rows on it is spread by rows: of two servers' parts one is by less than 1/256 larger then.
constexpr uint64_t kEvenRows = 4096;
/// What gradient compression packs together: a stripe, which is what is sent at a time, should not end within.
constexpr uint64_t kCodecValues = 64;

/// A number for a name that is never 0: its bytes, well mixed.
uint32_t home_by(std::string_view name) {
  uint64_t hash = name.size();
  for (const char letter : name) hash = base::mix(hash ^ static_cast<unsigned char>(letter));
  const auto home = static_cast<uint32_t>(hash >> 32);
  return home != 0 ? home : 1;
}

}  // namespace

shard::Spec spec_of(const std::string& name, const tensor::Tensor& value, uint32_t flags, uint64_t spread_from) {
  const uint64_t rows = value.shape.rows(), count = value.shape.count();
  const bool is_large = spread_from > 0 ? count >= spread_from : count * tensor::dtype_bytes(value.dtype) >= kSpreadBytes;
  shard::Spec spec;
  spec.name = name;
  spec.dtype = value.dtype;
  spec.kind = MV_MATRIX;
  spec.rows = rows;
  spec.cols = count / rows;
  spec.updater = {shard::kReplacing, {}};
  spec.flags = flags | shard::kStoreKey | (value.is_row_sparse() ? shard::kRowSparse : 0);
  if (!is_large) spec.home = home_by(name);
  if (value.is_row_sparse()) return spec;
  const uint64_t stripe = shard::stripe_elements(spec);
  const bool suits_codecs = count <= stripe || stripe % kCodecValues == 0;
  const bool by_rows = spec.row_bytes() <= shard::stripe_bytes(spec) && suits_codecs && (!is_large || rows >= kEvenRows);
  if (by_rows) return spec;
  spec.kind = MV_ARRAY;
  spec.rows = count;
  spec.cols = 1;
  return spec;
}

}  // namespace mv::kvstore
