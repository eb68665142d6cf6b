// The message of rank 0 to the other processes of a launcher's job: any input gives an address and a secret, or nothing.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/local_rendezvous.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto meeting = mv::runtime::parse_meeting(text);
  if (meeting && mv::runtime::write_meeting(*meeting) != text) std::abort();
  return 0;
}
