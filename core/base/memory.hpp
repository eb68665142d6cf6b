#pragma once
// Private memory for large arrays.

#include <cstddef>
#include <utility>

#include "base/result.hpp"

namespace mv::base {

/// Zeroed memory, in huge pages where the kernel has them. Pages are touched at first use: unwritten ones take no
/// memory. Small amounts come from operator new instead.
class Memory {
 public:
  enum Pages { kHugePages, kSmallPages };
  /// MV_ENOMEM. Zero bytes give an empty object. Small pages are for sparse access.
  static Result<Memory> make(size_t bytes, Pages pages = kHugePages);
  Memory() = default;
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  /// Advises huge pages for these bytes, even in memory of small pages, because all of them are about to be written.
  void expect(size_t begin, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace mv::base
