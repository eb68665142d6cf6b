#include "table/shard.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "math/kernels.hpp"

namespace mv::table {

base::Result<std::shared_ptr<Shard>> Shard::make(const Spec& spec, Range rows) {
  const uint64_t bytes = rows.count * spec.row_bytes();
  std::byte* memory = nullptr;
  if (bytes > 0) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
      return base::error(MV_ENOMEM, "table \"{}\": {} bytes for this server's part are not to be had: {}", spec.name, bytes,
                         std::strerror(errno));
    madvise(mapped, bytes, MADV_HUGEPAGE);  // first touch is 7 times as fast; a refusal changes nothing else
    memory = static_cast<std::byte*>(mapped);
  }
  return std::shared_ptr<Shard>(new Shard(spec, rows, memory));
}

Shard::Shard(const Spec& spec, Range rows, std::byte* memory)
    : rows_(rows),
      cols_(spec.cols),
      element_bytes_(spec.element_bytes()),
      stripe_elements_(table::stripe_elements(spec)),
      dtype_(spec.dtype),
      memory_(memory),
      locks_((rows.count * spec.cols + stripe_elements_ - 1) / stripe_elements_) {}

Shard::~Shard() {
  if (memory_ != nullptr) munmap(memory_, elements() * element_bytes_);
}

template <typename Work>
void Shard::for_stripes(uint64_t first, uint64_t count, Work work) const {
  for (uint64_t done = 0; done < count;) {
    const uint64_t from = first + done, stripe = from / stripe_elements_;
    const uint64_t share = std::min(count - done, (stripe + 1) * stripe_elements_ - from);
    std::lock_guard lock(locks_[stripe]);
    work(from, share, done);
    done += share;
  }
}

template <typename Work>
void Shard::for_row_runs(std::span<const int64_t> rows, Work work) const {
  const uint64_t stripe_rows = stripe_elements_ / cols_;
  for (size_t begin = 0; begin < rows.size();) {
    const uint64_t stripe = static_cast<uint64_t>(rows[begin]) / stripe_rows;
    size_t end = begin + 1;
    while (end < rows.size() && static_cast<uint64_t>(rows[end]) / stripe_rows == stripe) ++end;
    std::lock_guard lock(locks_[stripe]);
    work(begin, end - begin);
    begin = end;
  }
}

void Shard::add(uint64_t first, uint64_t count, const std::byte* values) {
  for_stripes(first, count, [&](uint64_t from, uint64_t share, uint64_t offset) {
    math::add_bytes(dtype_, at(from), values + offset * element_bytes_, share);
  });
}

void Shard::set(uint64_t first, uint64_t count, const std::byte* values) {
  for_stripes(first, count, [&](uint64_t from, uint64_t share, uint64_t offset) {
    std::memcpy(at(from), values + offset * element_bytes_, share * element_bytes_);
  });
}

void Shard::read(uint64_t first, uint64_t count, std::byte* out) const {
  for_stripes(first, count, [&](uint64_t from, uint64_t share, uint64_t offset) {
    std::memcpy(out + offset * element_bytes_, at(from), share * element_bytes_);
  });
}

void Shard::add_rows(std::span<const int64_t> rows, const std::byte* values) {
  const uint64_t row_bytes = cols_ * element_bytes_;
  if (cols_ > stripe_elements_) {
    for (size_t i = 0; i < rows.size(); ++i) add(static_cast<uint64_t>(rows[i]) * cols_, cols_, values + i * row_bytes);
    return;
  }
  for_row_runs(rows, [&](size_t begin, size_t count) {
    math::add_rows(dtype_, memory_, cols_, rows.data() + begin, count, values + begin * row_bytes);
  });
}

void Shard::set_rows(std::span<const int64_t> rows, const std::byte* values) {
  const uint64_t row_bytes = cols_ * element_bytes_;
  if (cols_ > stripe_elements_) {
    for (size_t i = 0; i < rows.size(); ++i) set(static_cast<uint64_t>(rows[i]) * cols_, cols_, values + i * row_bytes);
    return;
  }
  for_row_runs(rows, [&](size_t begin, size_t count) {
    for (size_t i = begin; i < begin + count; ++i)
      std::memcpy(memory_ + static_cast<uint64_t>(rows[i]) * row_bytes, values + i * row_bytes, row_bytes);
  });
}

void Shard::read_rows(std::span<const int64_t> rows, std::byte* out) const {
  const uint64_t row_bytes = cols_ * element_bytes_;
  if (cols_ > stripe_elements_) {
    for (size_t i = 0; i < rows.size(); ++i) read(static_cast<uint64_t>(rows[i]) * cols_, cols_, out + i * row_bytes);
    return;
  }
  for_row_runs(rows, [&](size_t begin, size_t count) {
    math::gather_rows(row_bytes, memory_, rows.data() + begin, count, out + begin * row_bytes);
  });
}

}  // namespace mv::table
