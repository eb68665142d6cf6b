#pragma once
// Shards and values for the tests of table/. Included after cmocka.

#include "shard/shard.hpp"

namespace mv::shard {

/// Makes a shard, or fails the test.
inline std::shared_ptr<Shard> make(const Spec& spec, const Position& place = {}) {
  auto shard = Shard::make(spec, place);
  if (!shard.ok()) fail_msg("%s", shard.status().text().c_str());
  return std::move(shard).value();
}

template <typename T>
const std::byte* in(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
template <typename T>
std::byte* out(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace mv::shard
