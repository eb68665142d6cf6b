#include "checkpoint/examine.hpp"

#include <algorithm>
#include <map>

#include "checkpoint/directory.hpp"
#include "shard/updater/updater.hpp"

namespace mv::checkpoint {

namespace {

/// The list of damage ends at about this length; more would not help.
constexpr size_t kMostDamage = 100;

class Examiner {
 public:
  Examiner(std::string path, const std::atomic<bool>& given_up) : path_(std::move(path)), given_up_(given_up) {}

  Examined examine(const Share& share) {
    auto manifest = read_manifest(path_);
    if (!manifest.ok()) {
      damaged(manifest.status());
      return std::move(found_);
    }
    found_.manifest = std::move(manifest).value();
    const Manifest& told = *found_.manifest;
    for (uint64_t server = 0; server < told.files.size() && found_.damage.size() < kMostDamage; ++server) {
      found_.files.push_back(open(server));
      if (found_.files.back() && server % share.of == share.index) check_data(*found_.files.back());
    }
    const bool all_there = found_.files.size() == told.files.size() &&
                           std::ranges::all_of(found_.files, [](const auto& file) { return file.has_value(); });
    for (const TableEntry& table : told.tables)
      if (all_there) check_table(table);
    return std::move(found_);
  }

 private:
  void damaged(std::string what) { found_.damage.push_back(std::move(what)); }
  void damaged(const base::Status& why) {
    if (why.code() != MV_EINVAL && why.code() != MV_ENOTFOUND && found_.failed.ok()) found_.failed = why;
    damaged(why.text());
  }

  std::optional<PartFile> open(uint64_t server) {
    const Manifest& told = *found_.manifest;
    const FileEntry& entry = told.files[server];
    const std::string path = path_ + "/" + entry.name;
    auto file = PartFile::open(path);
    if (!file.ok()) {
      damaged(file.status());
      return std::nullopt;
    }
    const PartLayout& part = file.value().part();
    if (file.value().bytes() != entry.bytes) {
      damaged(fmt::format("{}: has {} bytes, {} says {}", path, file.value().bytes(), kManifestName, entry.bytes));
    } else if (file.value().checksum() != entry.checksum) {
      damaged(fmt::format("{}: its header has checksum {}, {} says {}", path, file.value().checksum(), kManifestName,
                          entry.checksum));
    } else if (part.server != server || part.servers != told.files.size() || part.number != told.number) {
      damaged(fmt::format("{}: belongs to server {} of {} in checkpoint {}, not here", path, part.server, part.servers,
                          part.number));
    } else {
      return std::move(file).value();
    }
    return std::nullopt;
  }

  void check_data(const PartFile& file) {
    if (const auto wrong = file.verify(given_up_); !wrong.ok()) damaged(wrong);
  }

  /// Checks that every file has its part of the table, and that the parts together are the whole table.
  void check_table(const TableEntry& told) {
    std::vector<shard::Range> parts;
    for (const auto& file : found_.files) {
      const PartTable* const mine = file->find(told.spec.name);
      if (mine == nullptr)
        return damaged(
            fmt::format("table \"{}\": the file of server {} has no part of it", told.spec.name, file->part().server));
      if (!mine->entry.spec.same_shape(told.spec))
        return damaged(fmt::format("table \"{}\": {} in {}, but {} in the file of server {}", told.spec.name,
                                   told.spec.describe(), kManifestName, mine->entry.spec.describe(),
                                   file->part().server));
      const size_t states = make_updater(mine->entry.updater, tensor::storage_dtype(told.spec.dtype))->states();
      if (mine->states.size() != states)
        return damaged(fmt::format("table \"{}\": {} states in the file of server {}; {} keeps {}", told.spec.name,
                                   mine->states.size(), file->part().server, to_text(mine->entry.updater), states));
      parts.push_back(mine->rows);
    }
    if (told.spec.is_keyed()) return;
    std::ranges::sort(parts, {}, [](const shard::Range& range) { return std::pair(range.first, range.count); });
    uint64_t reached = 0;
    for (const shard::Range& range : parts) {
      if (range.count == 0) continue;
      if (range.first != reached)
        return damaged(fmt::format("table \"{}\": rows {} .. {} are {}", told.spec.name, std::min(reached, range.first),
                                   std::max(reached, range.first),
                                   range.first < reached ? "in two files" : "in no file"));
      reached = range.end();
    }
    if (reached != told.spec.rows)
      damaged(fmt::format("table \"{}\": rows {} .. {} are in no file", told.spec.name, reached, told.spec.rows));
  }

  const std::string path_;
  const std::atomic<bool>& given_up_;
  Examined found_;
};

}  // namespace

Examined examine(const std::string& path, const Share& share, const std::atomic<bool>& given_up) {
  return Examiner(path, given_up).examine(share);
}

base::Result<Examined> open_sound(const std::string& path, const Share& share, const std::atomic<bool>& given_up) {
  Examined found = examine(path, share, given_up);
  if (!found.failed.ok()) return found.failed;
  if (!found.damage.empty()) return base::error(MV_EINVAL, "the checkpoint is damaged: {}", found.damage.front());
  return found;
}

}  // namespace mv::checkpoint
