#pragma once
// Memory for intermediate results on a device.

#include <span>
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

}  // namespace mv::device
