#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "checkpoint/safetensors_json.hpp"

namespace mv::checkpoint {

static_assert(std::endian::native == std::endian::little,
              "the formats are little-endian, and values are written as they lie in memory");

namespace {

struct DtypeName {
  const char* name;
  uint64_t bytes;
};
/// All dtypes of safetensors whose elements are whole bytes.
constexpr DtypeName kDtypes[] = {{"F64", 8}, {"I64", 8},     {"U64", 8},     {"F32", 4}, {"I32", 4},
                                 {"U32", 4}, {"F16", 2},     {"BF16", 2},    {"I16", 2}, {"U16", 2},
                                 {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"U8", 1},  {"BOOL", 1}};

}  // namespace

std::string_view tensor_dtype(mv_dtype dtype) {
  switch (tensor::storage_dtype(dtype)) {
    case MV_F64:
      return "F64";
    case MV_I64:
      return "I64";
    case MV_F32:
      return "F32";
    case MV_I32:
      return "I32";
    case MV_I8:
      return "I8";
    default:
      return "U8";
  }
}

uint64_t dtype_bytes_of(std::string_view dtype) {
  const auto found =
      std::ranges::find(kDtypes, dtype, [](const DtypeName& known) { return std::string_view(known.name); });
  return found != std::end(kDtypes) ? found->bytes : 0;
}

uint64_t bytes_of(const Tensor& tensor) {
  uint64_t bytes = dtype_bytes_of(tensor.dtype);
  for (const uint64_t extent : tensor.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return UINT64_MAX;
  return bytes;
}

uint64_t place(const std::vector<Tensor*>& tensors) {
  uint64_t reached = 0;
  for (Tensor* tensor : tensors) {
    tensor->begin = reached;
    tensor->end = reached += bytes_of(*tensor);
  }
  return reached;
}

std::string_view foreign_kind(std::span<const std::byte> head, uint64_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  uint64_t length = 0;
  text.copy(reinterpret_cast<char*>(&length), sizeof length);  // unlike memcpy(), it takes an empty text without memory
  const bool is_ours = bytes >= kLengthBytes && length <= bytes - kLengthBytes;
  if (!is_ours && text.size() > 2 && byte(0) == 0x80 && byte(1) >= 2 && byte(1) <= 5) return "a pickled Python file";
  if (text.starts_with("(dp") || text.starts_with("(lp") || text.starts_with("ccopy_reg\n")) return "a pickled Python file";
  // Files of Perl's store(), and the output of freeze() and nfreeze().
  if (text.starts_with("pst0") || (!is_ours && text.size() > 3 && (byte(0) == 4 || byte(0) == 5) && byte(1) >= 2 && byte(1) <= 32))
    return "a Perl Storable file";
  return "";
}

base::Result<std::string> read_header(const InputFile& file) {
  const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "{}: {}", file.path(), what); };
  uint64_t length = 0;
  if (file.bytes() < kLengthBytes) return wrong("it ends inside its header");
  if (auto failed = file.read(0, std::as_writable_bytes(std::span(&length, 1))); !failed.ok()) return failed;
  if (length > file.bytes() - kLengthBytes || length > kMostHeaderBytes)
    return wrong(fmt::format("its header should have {} bytes, but the file has {}: truncated, or not a safetensors file", length, file.bytes()));
  std::string header(kLengthBytes + length, '\0');
  if (auto failed = file.read(0, std::as_writable_bytes(std::span(header))); !failed.ok()) return failed;
  return header;
}

// ---- JSON

std::optional<uint64_t> parse_count(std::optional<std::string_view> text) {
  uint64_t number = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

std::string write_checksums(const std::vector<const Tensor*>& tensors) {
  JsonWriter json;
  json.object([&] {
    for (const Tensor* tensor : tensors) json.field(tensor->name, tensor->checksum);
  });
  return json.take();
}

std::string write_header(const std::vector<const Tensor*>& tensors, const Metadata& metadata, uint64_t alignment) {
  JsonWriter writer;
  writer.object([&] {
    writer.object(kMetadata, [&] {
      for (const auto& [key, text] : metadata) writer.field(key, text);
    });
    for (const Tensor* tensor : tensors)
      writer.object(tensor->name, [&] {
        writer.field("dtype", tensor->dtype);
        writer.field("shape", tensor->shape);
        writer.field("data_offsets", std::vector{tensor->begin, tensor->end});
      });
  });
  const std::string json = writer.take();
  const uint64_t whole = (kLengthBytes + json.size() + alignment - 1) / alignment * alignment;
  const uint64_t length = whole - kLengthBytes;
  std::string text(whole, ' ');
  std::memcpy(text.data(), &length, sizeof length);
  std::memcpy(text.data() + kLengthBytes, json.data(), json.size());
  return text;
}

base::Result<TensorsByName> read_tensors(const JsonValue& header, uint64_t data_bytes) {
  TensorsByName tensors;
  for (const JsonValue json : header) {
    const std::string name(json.key());
    if (name == kMetadata) continue;
    const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "tensor \"{}\": {}", name, what); };
    if (!json.is_object()) return wrong("is not a JSON object");
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = json.find_text("dtype").value_or("");
    if (dtype_bytes_of(tensor.dtype) == 0) return wrong(fmt::format("unknown dtype \"{}\"", tensor.dtype));
    const auto shape = json.find_array("shape"), offsets = json.find_array("data_offsets");
    auto extents = shape ? shape->counts() : std::nullopt;
    const auto place = offsets ? offsets->counts() : std::nullopt;
    if (!extents || !place || place->size() != 2) return wrong("has no valid shape or data_offsets");
    tensor.shape = std::move(*extents);
    tensor.begin = place->front();
    tensor.end = place->back();
    if (tensor.begin > tensor.end || tensor.end > data_bytes)
      return wrong(fmt::format("is at {} .. {} of {} bytes of data: out of range, or the file is truncated",
                               tensor.begin, tensor.end, data_bytes));
    if (bytes_of(tensor) != tensor.bytes())
      return wrong(fmt::format("its shape does not match its {} bytes", tensor.bytes()));
    if (!tensors.emplace(name, std::move(tensor)).second) return wrong("appears twice");
  }
  std::vector<const Tensor*> order;
  for (const auto& [name, tensor] : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const Tensor* tensor) { return std::pair(tensor->begin, tensor->end); });
  uint64_t reached = 0;
  for (const Tensor* tensor : order) {
    if (tensor->begin != reached)
      return base::error(MV_EINVAL, "tensor \"{}\" begins at {}, {} {}", tensor->name, tensor->begin,
                         tensor->begin < reached ? "inside another that ends at" : "after a gap that starts at", reached);
    reached = tensor->end;
  }
  if (reached != data_bytes)
    return base::error(MV_EINVAL, "{} bytes of data, but the tensors cover only {}", data_bytes, reached);
  return tensors;
}

Taker::Taker(TensorsByName tensors, const JsonValue& checksums) : tensors_(std::move(tensors)) {
  for (const JsonValue checksum : checksums)
    if (const auto text = checksum.text()) checksums_.emplace(checksum.key(), *text);
}

base::Result<Tensor> Taker::take(std::optional<JsonValue> given, std::string_view dtype, const std::vector<uint64_t>& shape) {
  const auto name = given ? given->text() : std::nullopt;
  if (!name) return base::Status(MV_EINVAL, "a tensor without a name");
  const auto found = tensors_.find(*name);
  if (found == tensors_.end()) return base::error(MV_EINVAL, "its tensor \"{}\" is missing", *name);
  Tensor tensor = std::move(found->second);
  tensors_.erase(found);
  if (tensor.dtype != dtype || tensor.shape != shape)
    return base::error(MV_EINVAL, "tensor \"{}\" has an unexpected dtype or shape", tensor.name);
  const auto checksum = checksums_.find(tensor.name);
  if (checksum == checksums_.end()) return base::error(MV_EINVAL, "tensor \"{}\" has no checksum", tensor.name);
  tensor.checksum = checksum->second;
  return tensor;
}

base::Status Taker::nothing_left() const {
  return tensors_.empty() ? base::Status()
                          : base::error(MV_EINVAL, "nothing uses tensor \"{}\"", tensors_.begin()->first);
}

}  // namespace mv::checkpoint
