#include "base/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

namespace mv::base {

namespace {
constexpr size_t kHugePage = 2 << 20;
/// Smaller blocks get no pages of their own: thousands of small tables would all begin at the same offset of a page and
/// so share a few sets of the cache.
constexpr size_t kPaged = 64 << 10;
constexpr std::align_val_t kLine{64};
const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
}  // namespace

Result<Memory> Memory::make(size_t bytes, Pages pages) {
  Memory memory;
  if (bytes == 0) return memory;
  if (bytes < kPaged) {
    memory.data_ = static_cast<std::byte*>(::operator new(bytes, kLine, std::nothrow));
    if (memory.data_ == nullptr) return error(MV_ENOMEM, "can't allocate {} bytes of memory", bytes);
    std::memset(memory.data_, 0, bytes);
    memory.bytes_ = bytes;
    return memory;
  }
  // One extra huge page, so that the data can begin at a huge-page boundary.
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return error(MV_ENOMEM, "can't allocate {} bytes of memory: {}", bytes, std::strerror(errno));
  auto* data = static_cast<std::byte*>(mapped);
  if (slack > 0) {
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    if (before > 0) munmap(data, before);
    if (slack > before) munmap(data + before + whole, slack - before);
    data += before;
  }
  // The first touch of huge pages is 7 times as fast. A refusal is harmless.
  madvise(data, bytes, pages == kHugePages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  memory.data_ = data;
  memory.bytes_ = bytes;
  return memory;
}

void Memory::expect(size_t begin, size_t bytes) const {
  // Extends the range to whole huge pages: advice for a part of one has no effect.
  const size_t first = begin / kHugePage * kHugePage, end = (begin + bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (end <= bytes_) madvise(data_ + first, end - first, MADV_HUGEPAGE);
}

Memory::~Memory() {
  if (bytes_ >= kPaged)
    munmap(data_, bytes_);
  else
    ::operator delete(data_, kLine);
}

}  // namespace mv::base
