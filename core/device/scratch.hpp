#pragma once
// Memory for intermediate results on a device.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace mv::device {

/// Memory for intermediate results. It is released in the order of the stream, so it may be dropped as soon as the work
/// that uses it has been launched.
class Scratch {
 public:
  explicit Scratch(const Stream& stream) : stream_(stream) {}
  base::Result<void*> make(size_t bytes) {
    auto made = Memory::make(stream_, bytes);
    if (!made.ok()) return made.status();
    kept_.push_back(std::move(made).value());
    return kept_.back().as();
  }
  /// With a copy of the host's values.
  template <typename T>
  base::Result<const T*> of(std::span<const T> values) {
    auto made = Memory::of(stream_, values.data(), values.size_bytes());
    if (!made.ok()) return made.status();
    kept_.push_back(std::move(made).value());
    return kept_.back().template as<const T>();
  }

 private:
  const Stream& stream_;
  std::vector<Memory> kept_;
};

/// One allocation for several arrays, which are taken from it one after the other. It is released as Scratch is. With few allocations, a call
/// that is repeated is likely to get the addresses that it had before, as graphs need it.
class Room {
 public:
  /// The part that an array of so many bytes takes.
  static size_t part_of(size_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }
  /// @param bytes  the sum of the parts
  static base::Result<Room> make(const Stream& stream, size_t bytes) {
    auto made = Memory::make(stream, bytes);
    if (!made.ok()) return made.status();
    return Room(std::move(made).value());
  }
  void* take(size_t bytes) { return std::exchange(next_, next_ + part_of(bytes)); }

 private:
  static constexpr size_t kAligned = 256;  ///< as allocations are
  explicit Room(Memory memory) : memory_(std::move(memory)), next_(memory_.as<std::byte>()) {}
  Memory memory_;
  std::byte* next_;
};

}  // namespace mv::device
