#pragma once
// The format of our files, safetensors: a header of JSON that names tensors, and the tensors one behind the other.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.hpp"
#include "shard/spec.hpp"

namespace mv::checkpoint {

/// Longer headers are nobody's.
inline constexpr uint64_t kMostHeaderBytes = 64 << 20;
inline constexpr uint64_t kLengthBytes = 8;

struct Tensor {
  std::string name;
  std::string dtype;  ///< "F32"
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  ///< in the data
  std::string checksum;
  uint64_t bytes() const { return end - begin; }
};

/// "F32", for a storage dtype; "I64" for ids.
std::string_view tensor_dtype(mv_dtype dtype);
/// Of an element; 0 for a dtype that safetensors does not know.
uint64_t dtype_bytes_of(std::string_view dtype);
/// Elements times their size; UINT64_MAX where that is more than there can be.
uint64_t bytes_of(const Tensor& tensor);
/// Gives them their places, in this order, and tells how many bytes they make.
uint64_t place(const std::vector<Tensor*>& tensors);

/// A file's header, with its length in front. MV_EINVAL naming the file where there can be none.
base::Result<std::string> read_header(const InputFile& file);

}  // namespace mv::checkpoint
