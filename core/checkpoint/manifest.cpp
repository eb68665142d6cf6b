#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "checkpoint/checksum.hpp"
#include "checkpoint/json.hpp"
#include "shard/updater/updater.hpp"

namespace mv::checkpoint {

namespace {

constexpr std::string_view kKindNames[] = {"", "array", "matrix", "sparse", "keyvalue"};
/// Limit of sizes: no table has more, and products would overflow.
constexpr uint64_t kMostBytes = UINT64_C(1) << 62;

base::Status check_sizes(const shard::Spec& spec) {
  if (spec.cols == 0 || (spec.rows == 0) != (spec.kind == MV_KEYVALUE) || (spec.kind == MV_ARRAY && spec.cols != 1))
    return base::error(MV_EINVAL, "invalid size: {} rows of {} columns", spec.rows, spec.cols);
  const uint64_t stored = tensor::dtype_bytes(tensor::storage_dtype(spec.dtype));
  if (spec.cols > kMostBytes / stored || spec.rows > kMostBytes / (spec.cols * stored))
    return base::error(MV_EINVAL, "{} rows of {} columns are too many", spec.rows, spec.cols);
  if (spec.staleness < MV_UNSET) return base::error(MV_EINVAL, "invalid staleness {}", spec.staleness);
  return {};
}

base::Result<shard::UpdaterSpec> read_updater(const JsonValue& json, std::string_view key, mv_dtype dtype) {
  auto updater = shard::parse_updater(json.find_text(key).value_or("no text"));
  if (!updater.ok()) return updater.status();
  if (const base::Status wrong = shard::check_updater(updater.value(), dtype); !wrong.ok()) return wrong;
  return updater;
}

}  // namespace

std::string file_name(uint64_t server) { return fmt::format("server-{}.safetensors", server); }

void write_table(JsonWriter& json, const TableEntry& table) {
  const shard::Spec& spec = table.spec;
  json.field("name", spec.name);
  json.field("kind", kKindNames[std::clamp(spec.kind, 0, 4)]);
  json.field("dtype", tensor::dtype_name(spec.dtype));
  json.field("rows", spec.rows);
  json.field("cols", spec.cols);
  json.field("flags", spec.flags);
  json.field("updater", to_text(spec.updater));
  json.field("updater_now", to_text(table.updater));
  json.field("staleness", spec.staleness);
  json.field("initial", spec.initial);
  json.field("initial_range", spec.initial_range);
  json.field("seed", spec.seed);
  json.field("capacity", spec.capacity);
  if (spec.home != 0) json.field("home", spec.home);
  if (spec.is_on_device()) json.field("device", spec.device);
  json.field("clock", table.clock);
  if (table.mark.updates > 0) json.field("updates", table.mark.updates);
  if (!table.mark.shared.empty()) json.field("shared", table.mark.shared);
}

void write_file(JsonWriter& json, const FileEntry& file) {
  json.object([&] {
    json.field("name", file.name);
    json.field("bytes", file.bytes);
    json.field("checksum", file.checksum);
  });
}

base::Result<TableEntry> read_table(const JsonValue& json) {
  if (!json.is_object()) return base::Status(MV_EINVAL, "a table is not a JSON object");
  const auto name = json.find_text("name");
  if (!name) return base::Status(MV_EINVAL, "a table without a name");
  const auto wrong = [&](std::string_view what) { return base::error(MV_EINVAL, "table \"{}\": {}", *name, what); };
  TableEntry table;
  shard::Spec& spec = table.spec;
  spec.name = *name;
  const auto kind = std::ranges::find(kKindNames, json.find_text("kind").value_or("?"));
  if (kind == std::end(kKindNames) || kind == std::begin(kKindNames)) return wrong("unknown kind");
  spec.kind = static_cast<int32_t>(kind - std::begin(kKindNames));
  const auto dtype = tensor::parse_dtype(json.find_text("dtype").value_or("?"));
  if (!dtype || !tensor::is_table_dtype(*dtype)) return wrong("unknown dtype");
  spec.dtype = *dtype;
  const auto rows = json.find_count("rows"), cols = json.find_count("cols"), flags = json.find_count("flags"),
             seed = json.find_count("seed"), capacity = json.find_count("capacity"),
             clock = json.find_count("clock");
  const auto staleness = json.find_integer("staleness");
  const auto initial = json.find_real("initial"), range = json.find_real("initial_range");
  if (!rows || !cols || !flags || *flags > UINT32_MAX || !seed || !capacity || !clock || !staleness || !initial ||
      !range)
    return wrong("a field is missing or is not a number");
  spec.rows = *rows;
  spec.cols = *cols;
  spec.flags = static_cast<uint32_t>(*flags);
  spec.seed = *seed;
  spec.capacity = *capacity;
  spec.staleness = *staleness;
  spec.initial = *initial;
  spec.initial_range = *range;
  const uint64_t home = json.find_count("home").value_or(0);
  if (home > UINT32_MAX || (home != 0 && spec.is_keyed())) return wrong("invalid home");
  spec.home = static_cast<uint32_t>(home);
  const int64_t device = json.find_integer("device").value_or(shard::kHost);
  if (device < shard::kHost || device > INT32_MAX || (device != shard::kHost && spec.capacity != 0)) return wrong("invalid device");
  spec.device = static_cast<int32_t>(device);
  table.clock = *clock;
  table.mark.updates = json.find_count("updates").value_or(0);
  if (const auto shared = json.find("shared")) {
    auto numbers = shared->reals();
    if (!numbers) return wrong("\"shared\" is not a list of numbers");
    table.mark.shared = std::move(*numbers);
  }
  if (const base::Status sizes = check_sizes(spec); !sizes.ok()) return wrong(sizes.text());
  auto updater = read_updater(json, "updater", spec.dtype), now = read_updater(json, "updater_now", spec.dtype);
  if (!updater.ok()) return wrong(updater.status().text());
  if (!now.ok()) return wrong(now.status().text());
  spec.updater = std::move(updater).value();
  table.updater = std::move(now).value();
  return table;
}

namespace {

constexpr std::string_view kEnd = "\n}\n", kChecksumKey = "checksum";

/// The last field, which is the checksum of the text without it.
std::string checksum_field(std::string_view rest) {
  return fmt::format(",\n  \"{}\": \"{}\"", kChecksumKey, checksum_of(std::as_bytes(std::span(rest))));
}

/// Whether a text with a checksum is as it was written. Texts of earlier builds have none.
bool is_unchanged(std::string_view text, const JsonValue& root) {
  const size_t length = checksum_field("").size(), value = kChecksumLength + 1;  // with the quote at its end
  const std::string_view body = text.ends_with(kEnd) ? text.substr(0, text.size() - kEnd.size()) : std::string_view();
  const bool ends_with_one = body.size() >= length && body.substr(body.size() - value).starts_with("xxh3-");  // its key may be damaged
  if (!ends_with_one) return !root.find(kChecksumKey);
  const std::string rest = std::string(body.substr(0, body.size() - length)) + std::string(kEnd);
  return body.substr(body.size() - length) == checksum_field(rest);
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  JsonWriter json(JsonWriter::Layout::kIndented);
  json.object([&] {
    json.field("format", kFormat);
    json.field("number", manifest.number);
    json.field("time", manifest.time);
    json.field("servers", manifest.files.size());
    json.array("files", [&] {
      for (const FileEntry& file : manifest.files) write_file(json, file);
    });
    json.array("tables", [&] {
      for (const TableEntry& table : manifest.tables) json.object([&] { write_table(json, table); });
    });
  });
  std::string text = json.take() + "\n";
  return text.insert(text.size() - kEnd.size(), checksum_field(text));
}

base::Result<Manifest> parse_manifest(std::string_view text) {
  const auto wrong = [](std::string_view what) { return base::error(MV_EINVAL, "{}: {}", kManifestName, what); };
  const auto document = JsonDocument::parse(text);
  if (!document || !document->root().is_object()) return wrong("is not a JSON object");
  const JsonValue root = document->root();
  const auto format = root.find_count("format");
  if (!format) return wrong("has no format number");
  if (*format != kFormat) return wrong(fmt::format("has format {}; this build reads {}", *format, kFormat));
  if (!is_unchanged(text, root)) return wrong("is damaged, or was edited: its checksum is that of another text");
  Manifest manifest;
  const auto number = root.find_count("number"), servers = root.find_count("servers");
  const auto time = root.find_integer("time");
  const auto files = root.find_array("files"), tables = root.find_array("tables");
  if (!number || !servers || !time || !files || !tables) return wrong("a field is missing or has the wrong type");
  manifest.number = *number;
  manifest.time = *time;
  for (const JsonValue file : *files) {
    if (!file.is_object()) return wrong("a file is not a JSON object");
    const auto name = file.find_text("name"), checksum = file.find_text("checksum");
    const auto bytes = file.find_count("bytes");
    if (!name || !checksum || !bytes) return wrong("a file has no name, bytes or checksum");
    if (*name != file_name(manifest.files.size()))  // this also prevents paths out of the checkpoint
      return wrong(fmt::format("file {} has the wrong name \"{}\"", manifest.files.size(), *name));
    manifest.files.push_back({std::string(*name), *bytes, std::string(*checksum)});
  }
  if (manifest.files.empty() || manifest.files.size() != *servers)
    return wrong(fmt::format("{} files for {} servers", manifest.files.size(), *servers));
  std::unordered_set<std::string> names;
  for (const JsonValue table : *tables) {
    auto read = read_table(table);
    if (!read.ok()) return wrong(read.status().text());
    if (!names.insert(read.value().spec.name).second)
      return wrong(fmt::format("table \"{}\" appears twice", read.value().spec.name));
    manifest.tables.push_back(std::move(read).value());
  }
  return manifest;
}

}  // namespace mv::checkpoint
