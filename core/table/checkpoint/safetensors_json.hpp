#pragma once
// Headers of safetensors files as JSON; private to checkpoint/*.cpp, as json.hpp is.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "table/checkpoint/json.hpp"
#include "table/checkpoint/safetensors.hpp"

namespace mv::table::checkpoint {

inline constexpr const char* kMetadata = "__metadata__";

/// The header of these tensors with its length in front, padded with spaces. Metadata's values are text.
std::string write_header(const std::vector<const Tensor*>& tensors, Json metadata);
/// Their checksums by name, as a metadata's value.
std::string write_checksums(const std::vector<const Tensor*>& tensors);
/// The tensors of a header by name, one behind the other and without gaps.
base::Result<std::map<std::string, Tensor>> read_tensors(const Json& header, uint64_t data_bytes);
/// A number that was written as text.
std::optional<uint64_t> parse_count(const std::optional<std::string>& text);

/// Takes tensors out of a header, each of which belongs to something.
class Taker {
 public:
  Taker(std::map<std::string, Tensor> tensors, const Json& checksums);
  base::Result<Tensor> take(const Json* name, std::string_view dtype, const std::vector<uint64_t>& shape);
  base::Status nothing_left() const;

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> checksums_;
};

}  // namespace mv::table::checkpoint
