#include "table/checkpoint/part.hpp"

#include <algorithm>
#include <set>

#include "table/checkpoint/checksum.hpp"
#include "table/checkpoint/safetensors_json.hpp"

namespace mv::table::checkpoint {

namespace {

std::vector<uint64_t> shape_of(const Spec& spec, uint64_t rows) {
  return spec.kind == MV_ARRAY ? std::vector{rows} : std::vector{rows, spec.cols};
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
    return placed ? std::pair(a->begin, a->end) < std::pair(b->begin, b->end) : dtype_bytes_of(a->dtype) > dtype_bytes_of(b->dtype);
  });
}

// ---- reading

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
  part.data_bytes = place(part.tensors());
  part.data_begin = write_header(part).size();
}

std::string write_header(const Part& part) {
  Json tables = Json::array();
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
  return write_header(part.tensors(), {{"polyverso_format", std::to_string(kFormat)},
                                       {"number", std::to_string(part.number)},
                                       {"server", std::to_string(part.server)},
                                       {"servers", std::to_string(part.servers)},
                                       {"tables", dump(tables)},
                                       {"checksums", write_checksums(part.tensors())}});
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
