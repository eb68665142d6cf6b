#pragma once
// Headers of safetensors files as JSON; private to checkpoint/*.cpp.

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

/// The header of these tensors with its length in front, padded with spaces.
std::string write_header(const std::vector<const Tensor*>& tensors, const Metadata& metadata);
/// Their checksums by name, as a metadata's value.
std::string write_checksums(const std::vector<const Tensor*>& tensors);
/// Looked up by texts of a document.
using TensorsByName = std::map<std::string, Tensor, std::less<>>;
/// The tensors of a header by name, one behind the other and without gaps.
base::Result<TensorsByName> read_tensors(const JsonValue& header, uint64_t data_bytes);
/// A number that was written as text.
std::optional<uint64_t> parse_count(std::optional<std::string_view> text);

/// Takes tensors out of a header, each of which belongs to something.
class Taker {
 public:
  Taker(TensorsByName tensors, const JsonValue& checksums);
  /// @param name  as the header has it, or nothing
  base::Result<Tensor> take(std::optional<JsonValue> name, std::string_view dtype, const std::vector<uint64_t>& shape);
  base::Status nothing_left() const;

 private:
  TensorsByName tensors_;
  std::map<std::string, std::string, std::less<>> checksums_;
};

}  // namespace mv::checkpoint
