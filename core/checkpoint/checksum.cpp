#include "checkpoint/checksum.hpp"

#include <fmt/core.h>

#define XXH_INLINE_ALL  // inlines the few functions used, instead of loading the library
#include <xxhash.h>

namespace mv::checkpoint {

struct Checksum::State {
  XXH3_state_t hash;  // needs 64-byte alignment, which operator new provides since C++17
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> bytes) { XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size()); }

std::string Checksum::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return fmt::format("xxh3-{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.text();
}

}  // namespace mv::checkpoint
