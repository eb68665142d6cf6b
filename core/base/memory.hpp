#pragma once
// Memory of one process for large arrays.

#include <cstddef>
#include <utility>

#include "base/result.hpp"

namespace mv::base {

/// Zeros, in huge pages where the kernel has them. Pages are touched when first used: what nobody writes takes no
/// memory. Only small ones are not pages.
class Memory {
 public:
  enum Pages { kHugePages, kSmallPages };
  /// MV_ENOMEM; nothing for no bytes. Small pages: for what is touched here and there.
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

  /// These bytes are about to be written, all of them: small pages or not, here huge ones are worth it.
  void expect(size_t begin, size_t bytes) const;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace mv::base
