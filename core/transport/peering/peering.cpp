#include "transport/peering/peering.hpp"

#include <sodium.h>

#include <vector>

namespace mv::transport {

using wire::Handshake;
using wire::Refusal;

Peering::Peering(const base::Clock& clock, const HelloOptions& options, size_t most_fenced) : clock_(clock), options_(options), fenced_(most_fenced) {
  [[maybe_unused]] const int ready = sodium_init();
}

Handshake Peering::handshake(Handshake::Side side, wire::Introduction introduction) const {
  introduction.incarnation = options_.self;
  introduction.version_min = options_.version_min;
  introduction.version_max = options_.version_max;
  introduction.has_secret = !options_.secret.empty();
  Handshake::Randomness randomness;
  randombytes_buf(&randomness, sizeof randomness);
  return Handshake(side, std::move(introduction), randomness);
}

void Peering::close(base::Peer peer) {
  fenced_.add(peer);
  awaited_.erase(peer);
}

Refusal Peering::refusal(base::Peer peer, bool connected, bool dialing) const {
  if (fenced_.contains(peer)) return Refusal::kFenced;
  // The smaller one waits for the end of its own dial, which the larger one may have accepted before it dialed.
  return connected || (dialing && options_.self > peer) ? Refusal::kDuplicate : Refusal::kNone;
}

void Peering::await(base::Peer peer, const std::string& address) { awaited_[peer] = {address, clock_.now() + options_.hello_timeout}; }

std::string Peering::connected(base::Peer peer, std::string otherwise) {
  const auto awaited = awaited_.extract(peer);
  return awaited.empty() ? otherwise : awaited.mapped().address;
}

void Peering::tick(const DialFailed& failed) {
  const base::Nanos now = clock_.now();
  std::vector<std::string> unanswered;
  std::erase_if(awaited_, [&](const auto& item) {
    if (now < item.second.deadline) return false;
    unanswered.push_back(item.second.address);
    return true;
  });
  for (const std::string& address : unanswered)  // the calls may change awaited_
    failed(address, base::error(MV_EUNREACHABLE, "{} chose to connect to this process itself, but did not", address));
}

base::Status Peering::too_slow(const std::string& address) const {
  const double seconds = base::seconds(options_.hello_timeout);
  return base::error(MV_EUNREACHABLE, "{} did not finish the hello within {:g} s", address, seconds);
}

}  // namespace mv::transport
