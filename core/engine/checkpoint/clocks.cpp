#include "engine/checkpoint/clocks.hpp"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "wire/frame.hpp"

namespace mv::checkpoint {

base::Result<base::PayloadRef> write_clocks(const Clocks& clocks) {
  if (clocks.empty()) return base::PayloadRef();
  size_t bytes = 0;
  for (const auto& [name, clock] : clocks) bytes += sizeof(uint32_t) + sizeof clock + name.size();
  if (bytes > wire::kMaxPayloadBytes)
    return base::error(MV_EINVAL, "the clocks of {} tables, with their names, are {} bytes; the limit of a message is {}", clocks.size(), bytes, wire::kMaxPayloadBytes);
  const auto written = std::make_shared<std::vector<std::byte>>(bytes);
  std::byte* to = written->data();
  const auto put = [&to](const void* from, size_t size) {
    std::memcpy(to, from, size);
    to += size;
  };
  for (const auto& [name, clock] : clocks) {
    const auto length = static_cast<uint32_t>(name.size());
    put(&length, sizeof length);
    put(&clock, sizeof clock);
    put(name.data(), name.size());
  }
  return base::Payload::kept(*written, written);
}

std::optional<Clocks> read_clocks(std::span<const std::byte> payload) {
  Clocks clocks;
  const auto take = [&payload](void* to, size_t size) {
    if (payload.size() < size) return false;
    std::memcpy(to, payload.data(), size);
    payload = payload.subspan(size);
    return true;
  };
  while (!payload.empty()) {
    uint32_t length;
    uint64_t clock;
    if (!take(&length, sizeof length) || !take(&clock, sizeof clock) || payload.size() < length) return std::nullopt;
    clocks.emplace_hint(clocks.end(), std::string(reinterpret_cast<const char*>(payload.data()), length), clock);
    payload = payload.subspan(length);
  }
  return clocks;
}

}  // namespace mv::checkpoint
