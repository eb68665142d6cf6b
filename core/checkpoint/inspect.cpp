#include "checkpoint/inspect.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <unordered_map>

#include "checkpoint/directory.hpp"
#include "checkpoint/examine.hpp"
#include "checkpoint/json.hpp"

namespace mv::checkpoint {

namespace {

const std::atomic<bool> kNeverGivenUp{false};

/// Totals of one table over all files.
struct Held {
  uint64_t rows = 0, value_bytes = 0, state_bytes = 0, id_bytes = 0;
  size_t states = 0;
  void add(const PartTable& table) {
    rows += table.rows.count;
    value_bytes += table.values.bytes();
    id_bytes += table.ids.bytes();
    states = std::max(states, table.states.size());
    for (const Tensor& state : table.states) state_bytes += state.bytes();
  }
};

void write_report(JsonWriter& json, const TableEntry& entry, const Held& held) {
  write_table(json, entry);
  json.field("stored", held.rows);
  json.field("states", held.states);
  json.field("value_bytes", held.value_bytes);
  json.field("state_bytes", held.state_bytes);
  json.field("id_bytes", held.id_bytes);
}

/// Writes the report of a checkpoint as fields of an object. Returns the damage.
std::vector<std::string> write_checkpoint(JsonWriter& json, const std::string& path) {
  json.field("path", path);
  json.field("what", "checkpoint");
  Examined found = examine(path, {}, kNeverGivenUp);
  if (found.manifest) {
    const Manifest& manifest = *found.manifest;
    std::unordered_map<std::string_view, Held> held;
    uint64_t bytes = 0;
    for (const FileEntry& file : manifest.files) bytes += file.bytes;
    for (const auto& file : found.files) {
      if (!file) continue;
      for (const PartTable& table : file->part().tables) held[table.entry.spec.name].add(table);
    }
    json.field("format", kFormat);
    json.field("number", manifest.number);
    json.field("time", manifest.time);
    json.field("servers", manifest.files.size());
    json.field("bytes", bytes);
    json.array("files", [&] {
      for (const FileEntry& file : manifest.files) write_file(json, file);
    });
    json.array("tables", [&] {
      for (const TableEntry& entry : manifest.tables) json.object([&] { write_report(json, entry, held[entry.spec.name]); });
    });
  }
  json.field("damage", found.damage);
  return std::move(found.damage);
}

void write_directory(JsonWriter& json, const std::string& path, const std::vector<CheckpointPath>& places) {
  json.field("path", path);
  json.field("what", "directory");
  json.array("checkpoints", [&] {
    for (const CheckpointPath& place : places)
      json.object([&] {
        json.field("number", place.number);
        json.field("path", place.path);
        json.field("whole", place.whole);
      });
  });
  const auto newest = std::find_if(places.rbegin(), places.rend(), [](const CheckpointPath& place) { return place.whole; });
  std::vector<std::string> damage{"it contains no complete checkpoint"};
  if (newest != places.rend()) json.object("newest", [&] { damage = write_checkpoint(json, newest->path); });
  json.field("damage", damage);
}

void write_file_report(JsonWriter& json, const std::string& path) {
  json.field("path", path);
  json.field("what", "file");
  std::vector<std::string> damage;
  const auto file = PartFile::open(path);
  if (file.ok()) {
    const PartLayout& part = file.value().part();
    json.field("number", part.number);
    json.field("server", part.server);
    json.field("servers", part.servers);
    json.field("bytes", file.value().bytes());
    json.field("checksum", file.value().checksum());
    json.array("tables", [&] {
      for (const PartTable& table : part.tables)
        json.object([&] {
          Held held;
          held.add(table);
          write_report(json, table.entry, held);
          json.field("first", table.rows.first);
        });
    });
    if (const auto wrong = file.value().verify(kNeverGivenUp); !wrong.ok()) damage.push_back(wrong.text());
    const auto manifest = read_manifest(parent_of(path));
    if (manifest.ok() && part.server < manifest.value().files.size() &&
        manifest.value().files[part.server].checksum != file.value().checksum())
      damage.push_back(fmt::format("{}: the checksum of its header differs from the one in {}", path, kManifestName));
  } else {
    damage.push_back(file.status().text());
  }
  json.field("damage", damage);
}

}  // namespace

base::Result<std::string> inspect(const std::string& path) {
  struct stat stat {};
  if (::stat(path.c_str(), &stat) != 0)
    return errno == ENOENT ? base::error(MV_ENOTFOUND, "{}: there is no such file or directory", path)
                           : system_error(path, errno);
  JsonWriter json(JsonWriter::Layout::kIndented);
  if (!S_ISDIR(stat.st_mode)) {
    const bool is_manifest = path.ends_with(std::string("/") + kManifestName) || path == kManifestName;
    json.object([&] {
      if (is_manifest)
        write_checkpoint(json, parent_of(path));
      else
        write_file_report(json, path);
    });
    return json.take();
  }
  const auto checkpoint = find_checkpoint(path);
  if (checkpoint.ok() && checkpoint.value() == path) {
    json.object([&] { write_checkpoint(json, path); });
    return json.take();
  }
  if (!checkpoint.ok() && checkpoint.status().code() == MV_EINVAL) {
    json.object([&] {
      json.field("path", path);
      json.field("what", "checkpoint");
      json.field("damage", std::vector{checkpoint.status().text()});
    });
    return json.take();
  }
  const auto places = list_checkpoints(path);
  if (!places.ok()) return places.status();
  json.object([&] { write_directory(json, path, places.value()); });
  return json.take();
}

}  // namespace mv::checkpoint
