#pragma once
// must(): a device's error as an exception, for functions of shards, which have no status.

#include <utility>

#include "base/result.hpp"
#include "shard/on_device.hpp"

namespace mv::device {

inline void must(base::Status status) {
  if (!status.ok()) throw shard::DeviceFailure(std::move(status));
}
template <typename T>
T must(base::Result<T> result) {
  if (!result.ok()) throw shard::DeviceFailure(result.status());
  return std::move(result).value();
}

/// The error that work() throws, or ok().
template <typename Work>
base::Status status_of(const Work& work) {
  try {
    work();
  } catch (const shard::DeviceFailure& failure) {
    return failure.status();
  }
  return {};
}

}  // namespace mv::device
