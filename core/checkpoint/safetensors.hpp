#pragma once
// The safetensors format: a JSON header that describes tensors, followed by the tensors without gaps.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.hpp"
#include "shard/spec.hpp"

namespace mv::checkpoint {

/// Limit of the header's length.
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

/// The safetensors name of the storage dtype of `dtype`: "F32", or "I64" for ids.
std::string_view tensor_dtype(mv_dtype dtype);
/// Bytes of an element; 0 for an unknown dtype.
uint64_t dtype_bytes_of(std::string_view dtype);
/// Number of elements times their size; UINT64_MAX on overflow.
uint64_t bytes_of(const Tensor& tensor);
/// Assigns consecutive places to the tensors, in this order. Returns their total size in bytes.
uint64_t place(const std::vector<Tensor*>& tensors);

/// Recognizes other kinds of files that users of MXNet have. Returns their name, or "".
/// @param head   the file's first bytes, at least 11 unless it is shorter
/// @param bytes  the size of the file
std::string_view foreign_kind(std::span<const std::byte> head, uint64_t bytes);

/// Reads the header of a file, with its length in front. MV_EINVAL with the name of the file if it has no valid header.
base::Result<std::string> read_header(const InputFile& file);

}  // namespace mv::checkpoint
