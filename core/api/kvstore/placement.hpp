#pragma once
// spec_of(): how a key's value is laid out as a table.

#include <cstdint>
#include <string>

#include "shard/spec.hpp"
#include "tensor/tensor.hpp"

namespace mv::kvstore {

/// From this size on, a key is spread over all servers. (MXNet's bound is 10^6 elements.)
inline constexpr uint64_t kSpreadBytes = 4'000'000;

/// A large key is spread over all servers, by rows if that is even enough, otherwise by elements. A small key
/// lies whole on one server, which its name determines, the same in every process. Pushes replace the value
/// until an optimizer is set.
/// @param name         of the table
/// @param spread_from  elements of a large key, the same in all processes; 0: kSpreadBytes decides
shard::Spec spec_of(const std::string& name, const tensor::Tensor& value, uint32_t flags, uint64_t spread_from = 0);

}  // namespace mv::kvstore
