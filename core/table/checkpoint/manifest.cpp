#include "table/checkpoint/manifest.hpp"

#include <algorithm>
#include <set>

#include "table/checkpoint/json.hpp"
#include "table/updater/updater.hpp"

namespace mv::table::checkpoint {

namespace {

constexpr const char* kKindNames[] = {"", "array", "matrix", "sparse", "keyvalue"};
/// Sizes beyond this are nobody's, and would overflow where they are multiplied.
constexpr uint64_t kMostBytes = UINT64_C(1) << 62;

base::Status check_sizes(const Spec& spec) {
  if (spec.cols == 0 || (spec.rows == 0) != (spec.kind == MV_KEYVALUE) || (spec.kind == MV_ARRAY && spec.cols != 1))
    return base::error(MV_EINVAL, "{} rows of {} columns", spec.rows, spec.cols);
  const uint64_t stored = tensor::dtype_bytes(tensor::storage_dtype(spec.dtype));
  if (spec.cols > kMostBytes / stored || spec.rows > kMostBytes / (spec.cols * stored))
    return base::error(MV_EINVAL, "{} rows of {} columns are more than there can be", spec.rows, spec.cols);
  if (spec.staleness < MV_UNSET) return base::error(MV_EINVAL, "staleness {}", spec.staleness);
  return {};
}

base::Result<UpdaterSpec> read_updater(const Json& json, const char* key, mv_dtype dtype) {
  auto updater = parse_updater(find_text(json, key).value_or("no text"));
  if (!updater.ok()) return updater.status();
  if (const base::Status wrong = check_updater(updater.value(), dtype); !wrong.ok()) return wrong;
  return updater;
}

}  // namespace

std::string file_name(uint64_t server) { return fmt::format("server-{}.safetensors", server); }

Json write_table(const TableEntry& table) {
  const Spec& spec = table.spec;
  Json json;
  json["name"] = spec.name;
  json["kind"] = kKindNames[std::clamp(spec.kind, 0, 4)];
  json["dtype"] = tensor::dtype_name(spec.dtype);
  json["rows"] = spec.rows;
  json["cols"] = spec.cols;
  json["flags"] = spec.flags;
  json["updater"] = to_text(spec.updater);
  json["updater_now"] = to_text(table.updater);
  json["staleness"] = spec.staleness;
  json["initial"] = spec.initial;
  json["initial_range"] = spec.initial_range;
  json["seed"] = spec.seed;
  json["capacity"] = spec.capacity;
  if (spec.home != 0) json["home"] = spec.home;
  json["clock"] = table.clock;
  if (table.mark.updates > 0) json["updates"] = table.mark.updates;
  if (!table.mark.shared.empty()) json["shared"] = table.mark.shared;
  return json;
}

base::Result<TableEntry> read_table(const Json& json) {
  if (!json.is_object()) return base::Status(MV_EINVAL, "a table that is no JSON object");
  const auto name = find_text(json, "name");
  if (!name) return base::Status(MV_EINVAL, "a table without a name");
  const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "table \"{}\": {}", *name, what); };
  TableEntry table;
  Spec& spec = table.spec;
  spec.name = *name;
  const auto kind = std::ranges::find(kKindNames, find_text(json, "kind").value_or("?"));
  if (kind == std::end(kKindNames) || kind == std::begin(kKindNames)) return wrong("unknown kind of table");
  spec.kind = static_cast<int32_t>(kind - std::begin(kKindNames));
  const auto dtype = tensor::parse_dtype(find_text(json, "dtype").value_or("?"));
  if (!dtype || !tensor::is_table_dtype(*dtype)) return wrong("unknown dtype");
  spec.dtype = *dtype;
  const auto rows = find_count(json, "rows"), cols = find_count(json, "cols"), flags = find_count(json, "flags"),
             seed = find_count(json, "seed"), capacity = find_count(json, "capacity"),
             clock = find_count(json, "clock");
  const auto staleness = find_integer(json, "staleness");
  const auto initial = find_real(json, "initial"), range = find_real(json, "initial_range");
  if (!rows || !cols || !flags || *flags > UINT32_MAX || !seed || !capacity || !clock || !staleness || !initial ||
      !range)
    return wrong("a field is missing, or is not a number");
  spec.rows = *rows;
  spec.cols = *cols;
  spec.flags = static_cast<uint32_t>(*flags);
  spec.seed = *seed;
  spec.capacity = *capacity;
  spec.staleness = *staleness;
  spec.initial = *initial;
  spec.initial_range = *range;
  const uint64_t home = find_count(json, "home").value_or(0);
  if (home > UINT32_MAX || (home != 0 && spec.is_keyed())) return wrong("a home that no table has");
  spec.home = static_cast<uint32_t>(home);
  table.clock = *clock;
  table.mark.updates = find_count(json, "updates").value_or(0);
  if (const Json* shared = find(json, "shared"); shared != nullptr) {
    if (!shared->is_array() || !std::ranges::all_of(*shared, [](const Json& one) { return one.is_number(); }))
      return wrong("what its tensors share is not a list of numbers");
    table.mark.shared = shared->get<std::vector<double>>();
  }
  if (const base::Status sizes = check_sizes(spec); !sizes.ok()) return wrong(sizes.text());
  auto updater = read_updater(json, "updater", spec.dtype), now = read_updater(json, "updater_now", spec.dtype);
  if (!updater.ok()) return wrong(updater.status().text());
  if (!now.ok()) return wrong(now.status().text());
  spec.updater = std::move(updater).value();
  table.updater = std::move(now).value();
  return table;
}

std::string to_json(const Manifest& manifest) {
  Json files = Json::array(), tables = Json::array();
  for (const FileEntry& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  for (const TableEntry& table : manifest.tables) tables.push_back(write_table(table));
  Json json;
  json["format"] = kFormat;
  json["number"] = manifest.number;
  json["time"] = manifest.time;
  json["servers"] = manifest.files.size();
  json["files"] = std::move(files);
  json["tables"] = std::move(tables);
  return dump(json, 2) + "\n";
}

base::Result<Manifest> parse_manifest(std::string_view text) {
  const auto wrong = [](std::string_view what) { return base::error(MV_EINVAL, "{}: {}", kManifestName, what); };
  const auto json = parse_object(text);
  if (!json) return wrong("is not a JSON object");
  const auto format = find_count(*json, "format");
  if (!format) return wrong("has no format number");
  if (*format != kFormat) return wrong(fmt::format("has format {}; this build reads {}", *format, kFormat));
  Manifest manifest;
  const auto number = find_count(*json, "number"), servers = find_count(*json, "servers");
  const auto time = find_integer(*json, "time");
  const Json *files = find(*json, "files"), *tables = find(*json, "tables");
  if (!number || !servers || !time || files == nullptr || !files->is_array() || tables == nullptr ||
      !tables->is_array())
    return wrong("a field is missing, or of another type");
  manifest.number = *number;
  manifest.time = *time;
  for (const Json& file : *files) {
    if (!file.is_object()) return wrong("a file that is no JSON object");
    const auto name = find_text(file, "name"), checksum = find_text(file, "checksum");
    const auto bytes = find_count(file, "bytes");
    if (!name || !checksum || !bytes) return wrong("a file without name, bytes or checksum");
    if (*name != file_name(manifest.files.size()))  // also: no path leads out of the checkpoint
      return wrong(fmt::format("file {} is called \"{}\"", manifest.files.size(), *name));
    manifest.files.push_back({*name, *bytes, *checksum});
  }
  if (manifest.files.empty() || manifest.files.size() != *servers)
    return wrong(fmt::format("{} files of {} servers", manifest.files.size(), *servers));
  std::set<std::string> names;
  for (const Json& table : *tables) {
    auto read = read_table(table);
    if (!read.ok()) return wrong(read.status().text());
    if (!names.insert(read.value().spec.name).second)
      return wrong(fmt::format("table \"{}\" comes twice", read.value().spec.name));
    manifest.tables.push_back(std::move(read).value());
  }
  return manifest;
}

}  // namespace mv::table::checkpoint
