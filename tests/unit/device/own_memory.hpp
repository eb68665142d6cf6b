#pragma once
// Memory of a plug-in's own, for its one source: a driver does not fail with the allocations that tests let fail. Bound by -Bsymbolic.

#include <cstdlib>
#include <new>

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
