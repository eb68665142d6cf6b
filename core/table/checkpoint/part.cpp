#include "table/checkpoint/part.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "table/checkpoint/checksum.hpp"
#include "table/checkpoint/json.hpp"

namespace mv::table::checkpoint {

static_assert(std::endian::native == std::endian::little,
              "the formats are little-endian, and values are written as they lie in memory");

namespace {

constexpr const char* kMetadata = "__metadata__";
/// Where the data begins is a multiple of it.
constexpr uint64_t kAlignment = 4096;

struct DtypeName {
  const char* name;
  uint64_t bytes;
};
/// All that safetensors knows and whose elements are whole bytes.
constexpr DtypeName kDtypes[] = {{"F64", 8}, {"I64", 8},     {"U64", 8},     {"F32", 4}, {"I32", 4},
                                 {"U32", 4}, {"F16", 2},     {"BF16", 2},    {"I16", 2}, {"U16", 2},
                                 {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"U8", 1},  {"BOOL", 1}};

uint64_t bytes_of(std::string_view dtype) {
  const auto found =
      std::ranges::find(kDtypes, dtype, [](const DtypeName& known) { return std::string_view(known.name); });
  return found != std::end(kDtypes) ? found->bytes : 0;
}

/// Elements times their size; UINT64_MAX where that is more than there can be.
uint64_t bytes_of(const Tensor& tensor) {
  uint64_t bytes = bytes_of(tensor.dtype);
  for (const uint64_t extent : tensor.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return UINT64_MAX;
  return bytes;
}

std::vector<uint64_t> shape_of(const Spec& spec, uint64_t rows) {
  return spec.kind == MV_ARRAY ? std::vector{rows} : std::vector{rows, spec.cols};
}

std::optional<uint64_t> parse_count(const std::optional<std::string>& text) {
  uint64_t number = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

template <typename PartT, typename TensorT>
void collect(PartT& part, std::vector<TensorT*>& out) {
  for (auto& table : part.tables) {
    out.push_back(&table.values);
    if (table.entry.spec.is_keyed()) out.push_back(&table.ids);
    for (auto& state : table.states) out.push_back(&state);
  }
  // Larger elements first: so all of them are aligned.
  const bool placed = std::ranges::any_of(out, [](const Tensor* tensor) { return tensor->end > 0; });
  std::ranges::stable_sort(out, [&](const Tensor* a, const Tensor* b) {
    return placed ? std::pair(a->begin, a->end) < std::pair(b->begin, b->end) : bytes_of(a->dtype) > bytes_of(b->dtype);
  });
}

// ---- reading

/// The tensors of a header by name, one behind the other and without gaps.
base::Result<std::map<std::string, Tensor>> read_tensors(const Json& header, uint64_t data_bytes) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadata) continue;
    const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "tensor \"{}\": {}", name, what); };
    if (!json.is_object()) return wrong("is no JSON object");
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = find_text(json, "dtype").value_or("");
    if (bytes_of(tensor.dtype) == 0) return wrong(fmt::format("unknown dtype \"{}\"", tensor.dtype));
    const Json *shape = find(json, "shape"), *offsets = find(json, "data_offsets");
    const auto counts = [](const Json* array) {
      return array != nullptr && array->is_array() &&
             std::ranges::all_of(*array, [](const Json& n) { return n.is_number_unsigned(); });
    };
    if (!counts(shape) || !counts(offsets) || offsets->size() != 2) return wrong("has no shape, or no place");
    tensor.shape = shape->get<std::vector<uint64_t>>();
    tensor.begin = (*offsets)[0].get<uint64_t>();
    tensor.end = (*offsets)[1].get<uint64_t>();
    if (tensor.begin > tensor.end || tensor.end > data_bytes)
      return wrong(fmt::format("lies at {} .. {} of {} bytes of data: out of range, or the file is truncated",
                               tensor.begin, tensor.end, data_bytes));
    if (bytes_of(tensor) != tensor.bytes())
      return wrong(fmt::format("its shape does not make {} bytes", tensor.bytes()));
    tensors.emplace(name, std::move(tensor));
  }
  std::vector<const Tensor*> order;
  for (const auto& [name, tensor] : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const Tensor* tensor) { return std::pair(tensor->begin, tensor->end); });
  uint64_t reached = 0;
  for (const Tensor* tensor : order) {
    if (tensor->begin != reached)
      return base::error(MV_EINVAL, "tensor \"{}\" begins at {}, {} {}", tensor->name, tensor->begin,
                         tensor->begin < reached ? "inside another that ends at" : "behind a gap after", reached);
    reached = tensor->end;
  }
  if (reached != data_bytes)
    return base::error(MV_EINVAL, "{} bytes of data, of which the tensors make {}", data_bytes, reached);
  return tensors;
}

/// Takes tensors out of a header, each of which belongs to one table.
class Taker {
 public:
  Taker(std::map<std::string, Tensor> tensors, const Json& checksums) : tensors_(std::move(tensors)) {
    for (const auto& [name, checksum] : checksums.items())
      if (checksum.is_string()) checksums_.emplace(name, checksum.get<std::string>());
  }

  base::Result<Tensor> take(const Json* name, std::string_view dtype, const std::vector<uint64_t>& shape) {
    if (name == nullptr || !name->is_string()) return base::Status(MV_EINVAL, "a tensor without a name");
    const auto found = tensors_.find(name->get<std::string>());
    if (found == tensors_.end())
      return base::error(MV_EINVAL, "there is no tensor \"{}\" for it", name->get<std::string>());
    Tensor tensor = std::move(found->second);
    tensors_.erase(found);
    if (tensor.dtype != dtype || tensor.shape != shape)
      return base::error(MV_EINVAL, "tensor \"{}\" has another dtype or shape than its table", tensor.name);
    const auto checksum = checksums_.find(tensor.name);
    if (checksum == checksums_.end()) return base::error(MV_EINVAL, "tensor \"{}\" has no checksum", tensor.name);
    tensor.checksum = checksum->second;
    return tensor;
  }
  base::Status nothing_left() const {
    return tensors_.empty() ? base::Status()
                            : base::error(MV_EINVAL, "tensor \"{}\" belongs to no table", tensors_.begin()->first);
  }

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> checksums_;
};

base::Result<PartTable> read_part_table(const Json& json, Taker& taker) {
  auto entry = read_table(json);
  if (!entry.ok()) return entry.status();
  PartTable table;
  table.entry = std::move(entry).value();
  const Spec& spec = table.entry.spec;
  const auto wrong = [&](const std::string& what) {
    return base::error(MV_EINVAL, "table \"{}\": {}", spec.name, what);
  };
  const auto first = find_count(json, "first"), count = find_count(json, "count");
  if (!first || !count) return wrong("does not tell its rows");
  table.rows = {*first, *count};
  if (spec.is_keyed() ? *first != 0 : *first > spec.rows || *count > spec.rows - *first)
    return wrong(fmt::format("rows {} and {} more, of {}", *first, *count, spec.rows));
  const std::string_view dtype = tensor_dtype(spec.dtype);
  const auto shape = shape_of(spec, *count);
  auto values = taker.take(find(json, "values"), dtype, shape);
  if (!values.ok()) return wrong(values.status().text());
  table.values = std::move(values).value();
  if (spec.is_keyed()) {
    auto ids = taker.take(find(json, "ids"), tensor_dtype(MV_I64), {*count});
    if (!ids.ok()) return wrong(ids.status().text());
    table.ids = std::move(ids).value();
  }
  const Json* states = find(json, "states");
  if (states == nullptr || !states->is_array()) return wrong("does not tell its states");
  for (const Json& state : *states) {
    auto taken = taker.take(&state, dtype, shape);
    if (!taken.ok()) return wrong(taken.status().text());
    table.states.push_back(std::move(taken).value());
  }
  return table;
}

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

std::vector<Tensor*> Part::tensors() {
  std::vector<Tensor*> out;
  collect(*this, out);
  return out;
}
std::vector<const Tensor*> Part::tensors() const {
  std::vector<const Tensor*> out;
  collect(*this, out);
  return out;
}

void add_table(Part& part, const TableEntry& entry, const Range& rows, size_t states) {
  std::set<std::string> taken{kMetadata};
  for (const Tensor* tensor : part.tensors()) taken.insert(tensor->name);
  const auto make = [&](std::string name, std::string_view dtype, std::vector<uint64_t> shape) {
    while (!taken.insert(name).second) name += "~";  // a table "w.ids" beside the ids of a table "w"
    return Tensor{std::move(name), std::string(dtype), std::move(shape), 0, 0, std::string(kChecksumLength, '0')};
  };
  const Spec& spec = entry.spec;
  const std::string_view dtype = tensor_dtype(spec.dtype);
  PartTable table{entry, rows, {}, {}, {}};
  table.values = make(spec.is_keyed() ? spec.name + ".values" : spec.name, dtype, shape_of(spec, rows.count));
  if (spec.is_keyed()) table.ids = make(spec.name + ".ids", tensor_dtype(MV_I64), {rows.count});
  for (size_t i = 0; i < states; ++i)
    table.states.push_back(make(fmt::format("{}.state{}", spec.name, i), dtype, shape_of(spec, rows.count)));
  part.tables.push_back(std::move(table));
}

void lay_out(Part& part) {
  uint64_t reached = 0;
  for (Tensor* tensor : part.tensors()) {
    tensor->begin = reached;
    tensor->end = reached += bytes_of(*tensor);
  }
  part.data_bytes = reached;
  part.data_begin = write_header(part).size();
}

std::string write_header(const Part& part) {
  Json tables = Json::array(), checksums = Json::object(), header;
  for (const PartTable& table : part.tables) {
    Json json = write_table(table.entry);
    json["first"] = table.rows.first;
    json["count"] = table.rows.count;
    json["values"] = table.values.name;
    if (table.entry.spec.is_keyed()) json["ids"] = table.ids.name;
    json["states"] = Json::array();
    for (const Tensor& state : table.states) json["states"].push_back(state.name);
    tables.push_back(std::move(json));
  }
  for (const Tensor* tensor : part.tensors()) checksums[tensor->name] = tensor->checksum;
  header[kMetadata] = {{"polyverso_format", std::to_string(kFormat)},
                       {"number", std::to_string(part.number)},
                       {"server", std::to_string(part.server)},
                       {"servers", std::to_string(part.servers)},
                       {"tables", dump(tables)},
                       {"checksums", dump(checksums)}};
  for (const Tensor* tensor : part.tensors())
    header[tensor->name] = {
        {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {tensor->begin, tensor->end}}};
  const std::string json = dump(header);
  const uint64_t whole = (kLengthBytes + json.size() + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t length = whole - kLengthBytes;
  std::string text(whole, ' ');
  std::memcpy(text.data(), &length, sizeof length);
  std::memcpy(text.data() + kLengthBytes, json.data(), json.size());
  return text;
}

base::Result<Part> parse_header(std::string_view text, uint64_t file_bytes) {
  const auto header = parse_object(text);
  if (!header) return base::Status(MV_EINVAL, "its header is not a JSON object");
  Part part;
  part.data_begin = kLengthBytes + text.size();
  if (file_bytes < part.data_begin) return base::Status(MV_EINVAL, "it ends within its header");
  part.data_bytes = file_bytes - part.data_begin;
  auto tensors = read_tensors(*header, part.data_bytes);
  if (!tensors.ok()) return tensors.status();
  const Json* metadata = find(*header, kMetadata);
  if (metadata == nullptr || !metadata->is_object() || !find_text(*metadata, "polyverso_format"))
    return base::Status(MV_EINVAL, "a safetensors file, but not one of Polyverso's checkpoints");
  const auto format = parse_count(find_text(*metadata, "polyverso_format"));
  if (format != kFormat)
    return base::error(MV_EINVAL, "it has format {}; this build reads {}",
                       find_text(*metadata, "polyverso_format").value(), kFormat);
  const auto number = parse_count(find_text(*metadata, "number")), server = parse_count(find_text(*metadata, "server")),
             servers = parse_count(find_text(*metadata, "servers"));
  const Json tables = Json::parse(find_text(*metadata, "tables").value_or(""), nullptr, false);
  const auto checksums = parse_object(find_text(*metadata, "checksums").value_or(""));
  if (!number || !server || !servers || *server >= *servers || !tables.is_array() || !checksums)
    return base::Status(MV_EINVAL, "its metadata lacks a field, or has one of another type");
  part.number = *number;
  part.server = *server;
  part.servers = *servers;
  Taker taker(std::move(tensors).value(), *checksums);
  for (const Json& json : tables) {
    auto table = read_part_table(json, taker);
    if (!table.ok()) return table.status();
    part.tables.push_back(std::move(table).value());
  }
  if (const base::Status rest = taker.nothing_left(); !rest.ok()) return rest;
  return part;
}

}  // namespace mv::table::checkpoint
