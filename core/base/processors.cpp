#include "base/processors.hpp"

#include <sched.h>

namespace mv::base {

int allowed_processors() {
  constexpr int kMost = 8192;  // a cpu_set_t has 1,024, and the kernel refuses a set that is too small for the machine
  cpu_set_t* const allowed = CPU_ALLOC(kMost);
  if (allowed == nullptr) return 0;
  const size_t bytes = CPU_ALLOC_SIZE(kMost);
  const int count = sched_getaffinity(0, bytes, allowed) == 0 ? CPU_COUNT_S(bytes, allowed) : 0;
  CPU_FREE(allowed);
  return count;
}

}  // namespace mv::base
