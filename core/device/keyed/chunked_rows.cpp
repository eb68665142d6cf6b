#include "device/keyed/chunked_rows.hpp"

#include <algorithm>
#include <bit>

namespace mv::device {

namespace {
constexpr size_t kChunkBytes = size_t{2} << 20;  // the unit of a device's memory
constexpr size_t kFirstTable = 64;
}  // namespace

unsigned ChunkedRows::shift_for(size_t row_bytes) { return static_cast<unsigned>(std::bit_width(std::max<size_t>(1, kChunkBytes / row_bytes)) - 1); }

/// A larger table, with the addresses of the chunks so far.
base::Status ChunkedRows::grow_table(size_t chunks) {
  const size_t used = chunks_.size() * sizeof(void*), room = table_ != nullptr ? table_->bytes() / sizeof(void*) : 0;
  if (chunks <= room) return {};
  const size_t larger_room = std::max({chunks, 2 * room, kFirstTable});
  chunks_.reserve(larger_room);
  is_on_host_.reserve(larger_room);
  auto larger = device_->allocate(larger_room * sizeof(void*), tensor::Allocator::Content::kAnything);
  if (!larger.ok()) return larger.status();
  if (auto status = device_->current().copy(larger.value()->data(), table_ != nullptr ? table_->data() : nullptr, used); !status.ok()) return status;
  table_ = std::move(larger).value();
  return {};
}

base::Status ChunkedRows::reach(uint64_t rows) {
  const size_t wanted = static_cast<size_t>((rows + chunk_rows() - 1) >> shift_);
  if (wanted <= chunks_.size()) return {};
  if (auto status = grow_table(wanted); !status.ok()) return status;
  while (chunks_.size() < wanted) {
    auto made = device_->allocate_or_spill(chunk_bytes(), TensorDevice::Spill::kWhole);
    if (!made.ok()) return made.status();
    const std::byte* const data = made.value().block->data();
    auto status = device_->current().copy_staged(table_->data() + chunks_.size() * sizeof data, &data, sizeof data);
    if (!status.ok()) return status;
    host_bytes_ += made.value().on_host;
    is_on_host_.push_back(made.value().on_host > 0);
    chunks_.push_back(std::move(made.value().block));
  }
  return {};
}

}  // namespace mv::device
