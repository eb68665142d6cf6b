#include "checkpoint/updater_states.hpp"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include "base/utf8.hpp"
#include "checkpoint/safetensors_json.hpp"
#include "tensor/dtype.hpp"

namespace mv::checkpoint {

namespace {

/// The header's length is a multiple of this, which aligns 8-byte elements that come first.
constexpr uint64_t kElementAlignment = 8;
constexpr const char* kFormatField = "format";
constexpr const char* kAboutField = "about";
constexpr const char* kSumField = "sha256";

class Sha256 {
 public:
  Sha256() { crypto_hash_sha256_init(&state_); }
  void add(std::span<const std::byte> bytes) {
    crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  /// In hexadecimal digits.
  std::string text() {
    std::array<unsigned char, crypto_hash_sha256_BYTES> sum;
    crypto_hash_sha256_final(&state_, sum.data());
    return fmt::format("{:02x}", fmt::join(sum, ""));
  }

 private:
  crypto_hash_sha256_state state_;
};

std::string state_name(size_t index) { return fmt::format("state.{}", index); }

/// The tensors of a header as the checksum covers them. The text has spaces, because Python's JSON writer puts them.
std::string tensors_text(const TensorsByName& tensors) {
  std::string text = "{";
  for (const auto& [name, tensor] : tensors)
    text += fmt::format(R"({}"{}": {{"data_offsets": [{}, {}], "dtype": "{}", "shape": [{}]}})", text.size() > 1 ? ", " : "", name, tensor.begin, tensor.end,
                        tensor.dtype, fmt::join(tensor.shape, ", "));
  return text + "}";
}

std::string state_dtype(mv_dtype dtype) {
  std::string name(tensor::dtype_name(dtype));
  const auto upper = [](char letter) { return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter; };
  std::ranges::transform(name, name.begin(), upper);
  return name;
}

std::optional<mv_dtype> parse_state_dtype(std::string_view name) {
  for (const mv_dtype dtype : {MV_F32, MV_F64, MV_I64, MV_I32, MV_U8, MV_F16, MV_BF16, MV_I8})
    if (state_dtype(dtype) == name) return dtype;
  return std::nullopt;
}

/// The metadata without the checksum, as JSON with sorted names.
std::string rest_of(const JsonValue& metadata) {
  std::map<std::string_view, std::string_view> fields;
  for (const JsonValue field : metadata)
    if (field.key() != kSumField) fields.emplace(field.key(), field.text().value_or(""));
  JsonWriter json;
  json.object([&] {
    for (const auto& [name, text] : fields) json.field(name, text);
  });
  return json.take();
}

struct FileHeader {
  JsonDocument json;
  std::span<const std::byte> data;  ///< the tensors' bytes
};

std::optional<FileHeader> parse_header(std::span<const std::byte> file) {
  uint64_t length = 0;
  if (file.size() < kLengthBytes) return std::nullopt;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - kLengthBytes || length > kMostHeaderBytes) return std::nullopt;
  auto json = JsonDocument::parse({reinterpret_cast<const char*>(file.data()) + kLengthBytes, static_cast<size_t>(length)});
  if (!json || !json->root().is_object()) return std::nullopt;
  return FileHeader{std::move(*json), file.subspan(kLengthBytes + length)};
}

bool is_utf8(std::string_view text) { return base::utf8_end(text) == text.size(); }

base::Status damaged(std::string_view what) { return base::error(MV_EINVAL, "the states are damaged: {}", what); }

}  // namespace

base::Result<std::string> write_updater_header(std::string_view format, const UpdaterStates& states) {
  if (!is_utf8(format) || !is_utf8(states.about)) return base::Status(MV_EINVAL, "format and about must be UTF-8");
  TensorsByName by_name;
  std::vector<const Tensor*> listed;
  uint64_t reached = 0;
  for (const StateArray& array : states.arrays) {
    Tensor tensor{state_name(listed.size()), state_dtype(array.dtype), array.shape, reached, reached += array.bytes.size(), {}};
    listed.push_back(&by_name.emplace(tensor.name, std::move(tensor)).first->second);
  }
  Sha256 sum;
  sum.add(states.about);
  sum.add(tensors_text(by_name));
  for (const StateArray& array : states.arrays) sum.add(array.bytes);
  const Metadata metadata = {{kFormatField, std::string(format)}, {kAboutField, states.about}, {kSumField, sum.text()}};
  std::string header = write_header(listed, metadata, kElementAlignment);
  if (header.size() - kLengthBytes > kMostHeaderBytes)
    return base::error(MV_EINVAL, "the description has {} bytes, more than a header can hold", states.about.size());
  return header;
}

base::Result<UpdaterStates> read_updater_states(std::string_view format, std::span<const std::byte> file) {
  const auto header = parse_header(file);
  if (!header) {
    const auto kind = foreign_kind(file, file.size());
    if (kind.empty()) return base::Status(MV_EINVAL, "these are not the states of an updater, or they are damaged: they have no valid header");
    return base::error(MV_EINVAL, "this is {}, which may contain code, so it is not read: save the states again with get_states()", kind);
  }
  const auto metadata = header->json.root().find_object(kMetadata);
  const auto found = metadata ? metadata->find_text(kFormatField) : std::nullopt;
  if (found != format)
    return base::error(MV_EINVAL, "these are not the states of such an updater: the format is \"{}\", not \"{}\"", found.value_or(""), format);
  auto tensors = read_tensors(header->json.root(), header->data.size());
  if (!tensors.ok()) return damaged(tensors.status().text());
  const auto about = metadata->find_text(kAboutField), expected = metadata->find_text(kSumField);
  UpdaterStates states;
  // Early files of AI::MXNet describe the states in further fields of the metadata, and do not include dtypes and shapes
  // in the checksum.
  states.about = about ? std::string(*about) : rest_of(*metadata);
  Sha256 sum;
  sum.add(states.about);
  if (about) sum.add(tensors_text(tensors.value()));
  sum.add(header->data);
  if (!expected) return damaged("they have no checksum");
  if (sum.text() != *expected) return damaged("the checksum does not match");
  if (states.about.find('\0') != std::string::npos) return damaged("the description contains a zero byte");
  for (size_t i = 0; i < tensors.value().size(); ++i) {
    const auto tensor = tensors.value().find(state_name(i));
    if (tensor == tensors.value().end()) return damaged(fmt::format("tensor \"{}\" is missing", state_name(i)));
    const auto dtype = parse_state_dtype(tensor->second.dtype);
    if (!dtype) return damaged(fmt::format("tensor \"{}\" has dtype {}", state_name(i), tensor->second.dtype));
    states.arrays.push_back({*dtype, tensor->second.shape, header->data.subspan(tensor->second.begin, tensor->second.bytes())});
  }
  return states;
}

}  // namespace mv::checkpoint
