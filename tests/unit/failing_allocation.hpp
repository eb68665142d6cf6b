#pragma once
// Lets an allocation of the whole program fail. For the one source of a program, which then has these operators.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
/// Allocations until one fails; 0: none does.
uint64_t failing_allocation = 0;
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (failing_allocation > 0 && --failing_allocation == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
