#pragma once
// Tells damage, not malice: XXH3 with 128 bits, faster than memory.

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
  /// Of all that was added: "xxh3-" and 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);
/// As long as every text().
inline constexpr size_t kChecksumLength = 5 + 32;

}  // namespace mv::checkpoint
