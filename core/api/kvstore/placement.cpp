#include "api/kvstore/placement.hpp"

#include <string_view>

#include "base/mix.hpp"
#include "shard/updater/updater.hpp"

namespace mv::kvstore {

namespace {

/// From this many rows on, a large key is split by rows: the parts of two servers then differ by less than 1/256.
constexpr uint64_t kEvenRows = 4096;
/// Number of values that gradient compression packs together. Stripes, the unit of sending,
/// should not end within a pack.
constexpr uint64_t kCodecValues = 64;

/// A well-mixed hash of a name's bytes that is never 0.
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
