#pragma once
// The checksum of checkpoints: XXH3 with 128 bits, faster than memory. It detects damage, not malice.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace mv::checkpoint {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  void add(std::span<const std::byte> bytes);
  /// The checksum of all added bytes: "xxh3-" and 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);
/// The length of every text().
inline constexpr size_t kChecksumLength = 5 + 32;

}  // namespace mv::checkpoint
