#include "runtime/random.hpp"

#include <sys/random.h>

#include <fmt/ranges.h>

#include <array>
#include <cstdlib>

namespace mv::runtime {

base::Peer random_peer() {
  base::Peer peer = base::kNobody;
  while (peer == base::kNobody)
    if (getrandom(&peer, sizeof peer, 0) != sizeof peer) std::abort();  // no kernel refuses eight bytes
  return peer;
}

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace mv::runtime
