// A frame's prefix and header from the wire. If they pass the check, everything is read, including strings and vectors.

#include <cstdint>
#include <cstring>
#include <vector>

#include "wire/frame.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mv::wire;
  if (size < kPrefixBytes) return 0;
  std::vector<std::byte> bytes(size);  // aligned, as in a transport's buffer
  std::memcpy(bytes.data(), data, size);
  const auto prefix = read_prefix(bytes);
  if (!prefix.ok()) return 0;
  const size_t header_bytes = prefix.value().header_bytes;
  if (header_bytes > size - kPrefixBytes) return 0;
  const auto message = read_header(std::span<const std::byte>(bytes).subspan(kPrefixBytes, header_bytes));
  if (!message.ok()) return 0;
  // The copy reads every field.
  const std::vector<std::byte> copy = copy_header(*message.value());
  const auto copied = read_header(copy);
  return copied.ok() && copied.value()->seq() == message.value()->seq() ? 0 : -1;
}
