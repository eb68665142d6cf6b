#pragma once
// The JSON headers of safetensors files; private to checkpoint/*.cpp.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"
#include "checkpoint/safetensors.hpp"

namespace mv::checkpoint {

inline constexpr const char* kMetadata = "__metadata__";

using Metadata = std::vector<std::pair<std::string_view, std::string>>;

/// The header for these tensors, with its length in front, padded with spaces to a multiple of `alignment` bytes.
std::string write_header(const std::vector<const Tensor*>& tensors, const Metadata& metadata, uint64_t alignment = 4096);
/// The checksums of tensors by name, as a value for the metadata.
std::string write_checksums(const std::vector<const Tensor*>& tensors);
/// The transparent comparison permits lookups by string_view.
using TensorsByName = std::map<std::string, Tensor, std::less<>>;
/// Reads the tensors of a header. They must fill the data without gaps.
base::Result<TensorsByName> read_tensors(const JsonValue& header, uint64_t data_bytes);
/// Parses a number that was written as text.
std::optional<uint64_t> parse_count(std::optional<std::string_view> text);

/// Takes the tensors of a header one by one. At the end none may be left.
class Taker {
 public:
  Taker(TensorsByName tensors, const JsonValue& checksums);
  /// @param name  the tensor's name from the metadata, or nullopt
  base::Result<Tensor> take(std::optional<JsonValue> name, std::string_view dtype, const std::vector<uint64_t>& shape);
  base::Status nothing_left() const;

 private:
  TensorsByName tensors_;
  std::map<std::string, std::string, std::less<>> checksums_;
};

}  // namespace mv::checkpoint
