#pragma once
// Memory of a peer that this process reads by a fabric: without a message, and without the peer's processor where the network
// devices read remote memory by themselves.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/fabric/fabric.hpp"

namespace mv::transport {

class FabricTraffic;

/// The right to read it, which ends with the last get.
struct RemoteKey {
  RemoteKey(Fabric& its_fabric, mv_fabric_key its_key) : fabric(its_fabric), key(its_key) {}
  ~RemoteKey() { fabric.close_key(key); }
  RemoteKey(const RemoteKey&) = delete;
  RemoteKey& operator=(const RemoteKey&) = delete;
  Fabric& fabric;
  const mv_fabric_key key;
};

/// A request for bytes of it.
struct RemoteRange {
  uint64_t from;
  size_t bytes;
};

/// FabricTransport makes them, and ends each with the line to the peer. Loop thread only, except for bytes() and the destructor.
class RemoteMemory {
 public:
  /// Receives the bytes of all ranges, one after another, or the reason why they did not come. They are valid during the call.
  using Got = std::function<void(base::Result<std::span<const std::byte>>)>;

  RemoteMemory(FabricTraffic& traffic, mv_fabric_line line, std::shared_ptr<RemoteKey> key, uint64_t address, uint64_t bytes)
      : traffic_(&traffic), line_(line), key_(std::move(key)), address_(address), bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  uint64_t address() const { return address_; }
  /// No get is under way.
  bool is_idle() const { return key_.use_count() <= 1; }
  /// Begins to read ranges within it, in no order. `got` may be called before this returns.
  void get(std::span<const RemoteRange> ranges, Got got);
  /// The line has ended: every get fails.
  void end() {
    traffic_ = nullptr;
    key_.reset();
  }

 private:
  FabricTraffic* traffic_;
  const mv_fabric_line line_;
  std::shared_ptr<RemoteKey> key_;
  const uint64_t address_, bytes_;
};

}  // namespace mv::transport
