#pragma once
// How much a test does under a sanitizer.

#include <cstddef>

namespace mv::test {

/// A sanitizer sees in a few turns what it sees in many, and each takes five to twenty times as long: `usual` turns without, `sanitized` with one.
[[maybe_unused]] constexpr size_t turns([[maybe_unused]] size_t usual, [[maybe_unused]] size_t sanitized) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return sanitized;
#else
  return usual;
#endif
}

}  // namespace mv::test
