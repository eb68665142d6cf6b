#include "checkpoint/part.hpp"

#include <algorithm>
#include <unordered_set>

#include "checkpoint/checksum.hpp"
#include "checkpoint/safetensors_json.hpp"

namespace mv::checkpoint {

namespace {

std::vector<uint64_t> shape_of(const shard::Spec& spec, uint64_t rows) {
  return spec.kind == MV_ARRAY ? std::vector{rows} : std::vector{rows, spec.cols};
}

template <typename PartT, typename TensorT>
void collect(PartT& part, std::vector<TensorT*>& out) {
  for (auto& table : part.tables) {
    out.push_back(&table.values);
    if (table.entry.spec.is_keyed()) out.push_back(&table.ids);
    for (auto& state : table.states) out.push_back(&state);
  }
  // Larger elements first, which aligns all tensors.
  const bool placed = std::ranges::any_of(out, [](const Tensor* tensor) { return tensor->end > 0; });
  std::ranges::stable_sort(out, [&](const Tensor* a, const Tensor* b) {
    return placed ? std::pair(a->begin, a->end) < std::pair(b->begin, b->end) : dtype_bytes_of(a->dtype) > dtype_bytes_of(b->dtype);
  });
}

// ---- reading

base::Result<PartTable> read_part_table(const JsonValue& json, Taker& taker) {
  auto entry = read_table(json);
  if (!entry.ok()) return entry.status();
  PartTable table;
  table.entry = std::move(entry).value();
  const shard::Spec& spec = table.entry.spec;
  const auto wrong = [&](const std::string& what) {
    return base::error(MV_EINVAL, "table \"{}\": {}", spec.name, what);
  };
  const auto first = json.find_count("first"), count = json.find_count("count");
  if (!first || !count) return wrong("its range of rows is missing");
  table.rows = {*first, *count};
  if (spec.is_keyed() ? *first != 0 : *first > spec.rows || *count > spec.rows - *first)
    return wrong(fmt::format("first row {} and count {} exceed the {} rows", *first, *count, spec.rows));
  const std::string_view dtype = tensor_dtype(spec.dtype);
  const auto shape = shape_of(spec, *count);
  auto values = taker.take(json.find("values"), dtype, shape);
  if (!values.ok()) return wrong(values.status().text());
  table.values = std::move(values).value();
  if (spec.is_keyed()) {
    auto ids = taker.take(json.find("ids"), tensor_dtype(MV_I64), {*count});
    if (!ids.ok()) return wrong(ids.status().text());
    table.ids = std::move(ids).value();
  }
  const auto states = json.find_array("states");
  if (!states) return wrong("its list of states is missing");
  for (const JsonValue state : *states) {
    auto taken = taker.take(state, dtype, shape);
    if (!taken.ok()) return wrong(taken.status().text());
    table.states.push_back(std::move(taken).value());
  }
  return table;
}

}  // namespace

std::vector<Tensor*> PartLayout::tensors() {
  std::vector<Tensor*> out;
  collect(*this, out);
  return out;
}
std::vector<const Tensor*> PartLayout::tensors() const {
  std::vector<const Tensor*> out;
  collect(*this, out);
  return out;
}

void add_table(PartLayout& part, const TableEntry& entry, const shard::Range& rows, size_t states) {
  const shard::Spec& spec = entry.spec;
  const auto make = [](std::string name, std::string_view dtype, std::vector<uint64_t> shape) {
    return Tensor{std::move(name), std::string(dtype), std::move(shape), 0, 0, std::string(kChecksumLength, '0')};
  };
  const std::string_view dtype = tensor_dtype(spec.dtype);
  PartTable table{entry, rows, {}, {}, {}};
  table.values = make(spec.is_keyed() ? spec.name + ".values" : spec.name, dtype, shape_of(spec, rows.count));
  if (spec.is_keyed()) table.ids = make(spec.name + ".ids", tensor_dtype(MV_I64), {rows.count});
  for (size_t i = 0; i < states; ++i)
    table.states.push_back(make(fmt::format("{}.state{}", spec.name, i), dtype, shape_of(spec, rows.count)));
  part.tables.push_back(std::move(table));
}

void lay_out(PartLayout& part) {
  std::unordered_set<std::string> taken{kMetadata};
  const auto name = [&](Tensor& tensor) {
    // For example, a table "w.ids" and the ids of a table "w" have the same name.
    while (!taken.insert(tensor.name).second) tensor.name += "~";
  };
  for (PartTable& table : part.tables) {
    name(table.values);
    if (table.entry.spec.is_keyed()) name(table.ids);
    for (Tensor& state : table.states) name(state);
  }
  part.data_bytes = place(part.tensors());
  part.data_begin = write_header(part).size();
}

std::string write_header(const PartLayout& part) {
  JsonWriter tables;
  tables.array([&] {
    for (const PartTable& table : part.tables)
      tables.object([&] {
        write_table(tables, table.entry);
        tables.field("first", table.rows.first);
        tables.field("count", table.rows.count);
        tables.field("values", table.values.name);
        if (table.entry.spec.is_keyed()) tables.field("ids", table.ids.name);
        tables.array("states", [&] {
          for (const Tensor& state : table.states) tables.value(state.name);
        });
      });
  });
  return write_header(part.tensors(), {{"polyverso_format", std::to_string(kFormat)},
                                       {"number", std::to_string(part.number)},
                                       {"server", std::to_string(part.server)},
                                       {"servers", std::to_string(part.servers)},
                                       {"tables", tables.take()},
                                       {"checksums", write_checksums(part.tensors())}});
}

base::Result<PartLayout> parse_header(std::string_view text, uint64_t file_bytes) {
  const auto document = JsonDocument::parse(text);
  if (!document || !document->root().is_object()) return base::Status(MV_EINVAL, "its header is not a JSON object");
  const JsonValue header = document->root();
  PartLayout part;
  part.data_begin = kLengthBytes + text.size();
  if (file_bytes < part.data_begin) return base::Status(MV_EINVAL, "it ends inside its header");
  part.data_bytes = file_bytes - part.data_begin;
  auto tensors = read_tensors(header, part.data_bytes);
  if (!tensors.ok()) return tensors.status();
  const auto metadata = header.find_object(kMetadata);
  const auto format_text = metadata ? metadata->find_text("polyverso_format") : std::nullopt;
  if (!format_text) return base::Status(MV_EINVAL, "a safetensors file, but not of a Polyverso checkpoint");
  if (parse_count(format_text) != kFormat) return base::error(MV_EINVAL, "it has format {}; this build reads {}", *format_text, kFormat);
  const auto number = parse_count(metadata->find_text("number")), server = parse_count(metadata->find_text("server")),
             servers = parse_count(metadata->find_text("servers"));
  const auto tables = JsonDocument::parse(metadata->find_text("tables").value_or(""));
  const auto checksums = JsonDocument::parse(metadata->find_text("checksums").value_or(""));
  if (!number || !server || !servers || *server >= *servers || !tables || !tables->root().is_array() || !checksums || !checksums->root().is_object())
    return base::Status(MV_EINVAL, "its metadata lacks a field or has one of the wrong type");
  part.number = *number;
  part.server = *server;
  part.servers = *servers;
  Taker taker(std::move(tensors).value(), checksums->root());
  for (const JsonValue json : tables->root()) {
    auto table = read_part_table(json, taker);
    if (!table.ok()) return table.status();
    part.tables.push_back(std::move(table).value());
  }
  if (const base::Status rest = taker.nothing_left(); !rest.ok()) return rest;
  return part;
}

}  // namespace mv::checkpoint
