#pragma once
// How a key's value becomes a table.

#include <cstdint>
#include <string>

#include "shard/spec.hpp"
#include "tensor/tensor.hpp"

namespace mv::kvstore {

/// From this size on a key is spread over all servers. (MXNet's bound is 10^6 elements.)
inline constexpr uint64_t kSpreadBytes = 4'000'000;

/// A large key is spread over all servers, by rows where that is even enough, else by elements; a small one lies whole on one
/// server, which its name decides, the same in every process. Pushes replace the value, as long as nobody sets an optimizer.
/// @param name         of the table
/// @param spread_from  elements of a large key, the same in all processes; 0: those of kSpreadBytes
shard::Spec spec_of(const std::string& name, const tensor::Tensor& value, uint32_t flags, uint64_t spread_from = 0);

}  // namespace mv::kvstore
