#include "table/checkpoint/inspect.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "table/checkpoint/directory.hpp"
#include "table/checkpoint/examine.hpp"
#include "table/checkpoint/json.hpp"

namespace mv::table::checkpoint {

namespace {

const std::atomic<bool> kNeverGivenUp{false};

/// What the files hold of one table, added up.
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

Json table_report(const TableEntry& entry, const Held& held) {
  Json json = write_table(entry);
  json["stored"] = held.rows;
  json["states"] = held.states;
  json["value_bytes"] = held.value_bytes;
  json["state_bytes"] = held.state_bytes;
  json["id_bytes"] = held.id_bytes;
  return json;
}

Json checkpoint_report(const std::string& path) {
  Json json{{"path", path}, {"what", "checkpoint"}};
  Examined found = examine(path, {}, kNeverGivenUp);
  if (found.manifest) {
    const Manifest& manifest = *found.manifest;
    uint64_t bytes = 0;
    Json files = Json::array(), tables = Json::array();
    for (const FileEntry& file : manifest.files) {
      bytes += file.bytes;
      files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", file.checksum}});
    }
    for (const TableEntry& entry : manifest.tables) {
      Held held;
      for (const auto& file : found.files) {
        if (!file) continue;
        for (const PartTable& table : file->part().tables)
          if (table.entry.spec.name == entry.spec.name) held.add(table);
      }
      tables.push_back(table_report(entry, held));
    }
    json["format"] = kFormat;
    json["number"] = manifest.number;
    json["time"] = manifest.time;
    json["servers"] = manifest.files.size();
    json["bytes"] = bytes;
    json["files"] = std::move(files);
    json["tables"] = std::move(tables);
  }
  json["damage"] = found.damage;
  return json;
}

Json directory_report(const std::string& path, const std::vector<Place>& places) {
  Json json{{"path", path}, {"what", "directory"}}, list = Json::array();
  for (const Place& place : places)
    list.push_back({{"number", place.number}, {"path", place.path}, {"whole", place.whole}});
  json["checkpoints"] = std::move(list);
  const auto newest = std::find_if(places.rbegin(), places.rend(), [](const Place& place) { return place.whole; });
  if (newest == places.rend()) {
    json["damage"] = {"there is no whole checkpoint in it"};
    return json;
  }
  json["newest"] = checkpoint_report(newest->path);
  json["damage"] = json["newest"]["damage"];
  return json;
}

Json file_report(const std::string& path) {
  Json json{{"path", path}, {"what", "file"}};
  std::vector<std::string> damage;
  const auto file = PartFile::open(path);
  if (file.ok()) {
    const Part& part = file.value().part();
    Json tables = Json::array();
    for (const PartTable& table : part.tables) {
      Held held;
      held.add(table);
      tables.push_back(table_report(table.entry, held));
      tables.back()["first"] = table.rows.first;
    }
    json["number"] = part.number;
    json["server"] = part.server;
    json["servers"] = part.servers;
    json["bytes"] = file.value().bytes();
    json["checksum"] = file.value().checksum();
    json["tables"] = std::move(tables);
    if (const auto wrong = file.value().verify(kNeverGivenUp); !wrong.ok()) damage.push_back(wrong.text());
    const auto manifest = read_manifest(parent_of(path));
    if (manifest.ok() && part.server < manifest.value().files.size() &&
        manifest.value().files[part.server].checksum != file.value().checksum())
      damage.push_back(fmt::format("{}: {} beside it says that its header has another checksum", path, kManifestName));
  } else {
    damage.push_back(file.status().text());
  }
  json["damage"] = damage;
  return json;
}

}  // namespace

base::Result<std::string> inspect(const std::string& path) {
  struct stat stat {};
  if (::stat(path.c_str(), &stat) != 0)
    return errno == ENOENT ? base::error(MV_ENOTFOUND, "{}: there is no such file or directory", path)
                           : system_error(path, errno);
  if (!S_ISDIR(stat.st_mode)) {
    const bool is_manifest = path.ends_with(std::string("/") + kManifestName) || path == kManifestName;
    return dump(is_manifest ? checkpoint_report(parent_of(path)) : file_report(path), 2);
  }
  const auto checkpoint = find_checkpoint(path);
  if (checkpoint.ok() && checkpoint.value() == path) return dump(checkpoint_report(path), 2);
  if (!checkpoint.ok() && checkpoint.status().code() == MV_EINVAL)
    return dump(Json{{"path", path}, {"what", "checkpoint"}, {"damage", {checkpoint.status().text()}}}, 2);
  const auto places = list_checkpoints(path);
  if (!places.ok()) return places.status();
  return dump(directory_report(path, places.value()), 2);
}

}  // namespace mv::table::checkpoint
