#pragma once
// The states of an updater that a program keeps itself, as a safetensors file in memory: any tensors, and a text that
// describes them.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mv::checkpoint {

/// A tensor of the states. It does not own its elements.
struct StateArray {
  mv_dtype dtype = MV_F32;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
};

struct UpdaterStates {
  std::string about;  ///< the description, in a form of the writer's own
  std::vector<StateArray> arrays;
};

/// The file up to the arrays' bytes, which follow in order.
/// @param format  the kind of file; a reader expects the same
/// @return MV_EINVAL for a text that is not UTF-8, or that is too long
base::Result<std::string> write_updater_header(std::string_view format, const UpdaterStates& states);
/// Reads a whole file. The arrays view its bytes.
/// @return MV_EINVAL with the reason if it is damaged, or another kind of file
base::Result<UpdaterStates> read_updater_states(std::string_view format, std::span<const std::byte> file);

}  // namespace mv::checkpoint
