#include "checkpoint/directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/log.hpp"
#include "checkpoint/file.hpp"

namespace mv::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr uint64_t kMostManifestBytes = 64 << 20;

std::optional<uint64_t> number_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() && number < UINT64_MAX ? std::optional(number)
                                                                                         : std::nullopt;
}

bool has_manifest(const std::string& path) {
  struct stat stat {};
  return ::stat((path + "/" + kManifestName).c_str(), &stat) == 0 && S_ISREG(stat.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat stat {};
  return ::stat(path.c_str(), &stat) == 0 && S_ISDIR(stat.st_mode);
}

/// True for the name of a file that Claim, write_part() or complete_checkpoint() makes, finished or not.
bool is_ours(std::string name) {
  if (name.ends_with(kPartSuffix)) name.resize(name.size() - kPartSuffix.size());
  return name == kManifestName || name == kClaimName || (name.starts_with("server-") && name.ends_with(".safetensors"));
}

std::string name_of(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::string parent_of(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  const fs::path parent = (whole.has_filename() ? whole : whole.parent_path()).parent_path();
  return parent.empty() ? "." : parent.string();
}

base::Result<std::vector<CheckpointPath>> list_checkpoints(const std::string& directory) {
  const auto names = names_in(directory);
  if (!names.ok()) return names.status();
  std::vector<CheckpointPath> places;
  for (const std::string& name : names.value()) {
    const auto number = number_of(name);
    const std::string path = directory.ends_with('/') ? directory + name : directory + "/" + name;
    if (number && is_directory(path)) places.push_back({*number, path, has_manifest(path)});
  }
  std::ranges::sort(places, {}, [](const CheckpointPath& place) { return std::pair(place.number, place.path); });
  return places;
}

namespace {

/// The topmost directory above `path` that does not exist; empty if the one above it does.
std::string missing_parent(const std::string& path) {
  std::string missing;
  for (std::string parent = parent_of(path); !is_directory(parent); parent = parent_of(parent)) {
    if (parent == missing) break;  // "/" or "."
    missing = parent;
  }
  return missing;
}

}  // namespace

base::Result<CheckpointPath> begin_checkpoint(const std::string& directory) {
  const std::string missing = missing_parent(directory);
  if (auto failed = make_directory(directory); !failed.ok())
    return failed.text().starts_with(directory + ":") ? failed : base::error(failed.code(), "{}: can't create it: {}", directory, failed.text());
  if (!missing.empty()) base::log_warn("checkpoints: {} did not exist: it was created, to save to {}", missing, directory);
  const auto places = list_checkpoints(directory);
  if (!places.ok()) return places.status();
  CheckpointPath place;
  place.number = places.value().empty() ? 1 : places.value().back().number + 1;
  for (;; ++place.number) {
    place.path = fmt::format("{}/{}{:06}", directory, kPrefix, place.number);
    if (retried([&] { return mkdir(place.path.c_str(), 0777); }) == 0) break;
    if (errno != EEXIST) return system_error(place.path, errno);  // otherwise another job has taken this number
  }
  auto claim = Claim::take(place.path);  // complete_checkpoint() syncs the directory's name before it writes the manifest
  if (!claim.ok()) {
    static_cast<void>(remove_checkpoint(place.path));
    return claim.status();
  }
  place.claim = std::move(claim).value();
  return place;
}

base::Result<CheckpointPath> take_over_checkpoint(const std::string& path) {
  if (!is_directory(path)) return base::error(MV_ENOTFOUND, "{}: it was removed", path);
  CheckpointPath place{number_of(name_of(path)).value_or(0), path, has_manifest(path)};
  if (place.whole) return place;
  auto claim = Claim::take_over(path);
  if (!claim.ok()) return claim.status();
  place.claim = std::move(claim).value();
  return place;
}

base::Status complete_checkpoint(const std::string& path, const Manifest& manifest) {
  if (auto failed = sync_directory(parent_of(path)); !failed.ok()) return failed;
  if (auto failed = write_file(path + "/" + kManifestName, to_json(manifest)); !failed.ok()) return failed;
  if (auto failed = sync_directory(path); !failed.ok()) return failed;
  unlink((path + "/" + kClaimName).c_str());  // may fail: a claim is ignored once there is a manifest
  return {};
}

base::Status remove_checkpoint(const std::string& path) {
  if (!is_directory(path)) return {};  // another job may have removed it
  if (unlink((path + "/" + kManifestName).c_str()) != 0 && errno != ENOENT) return system_error(path, errno);
  if (auto failed = sync_directory(path); !failed.ok()) return failed;
  const auto names = names_in(path);
  if (!names.ok()) return names.status().code() == MV_ENOTFOUND ? base::Status() : names.status();
  for (const std::string& name : names.value()) {
    const std::string file = path + "/" + name;
    if (is_ours(name) && unlink(file.c_str()) != 0 && errno != ENOENT) return system_error(file, errno);
  }
  // Fails if the directory contains files that are not ours.
  return rmdir(path.c_str()) == 0 || errno == ENOENT ? base::Status() : system_error(path, errno);
}

base::Status prune_checkpoints(const std::string& directory, uint64_t keep, uint64_t spared) {
  const auto places = list_checkpoints(directory);
  if (!places.ok()) return places.status();
  uint64_t whole = 0;
  base::Status first;
  for (auto place = places.value().rbegin(); place != places.value().rend(); ++place) {
    const bool goes = place->whole ? keep > 0 && whole >= keep && place->number != spared : whole > 0 && is_abandoned(place->path);
    whole += place->whole ? 1 : 0;
    if (!goes) continue;
    if (auto failed = remove_checkpoint(place->path); !failed.ok() && first.ok()) first = failed;
  }
  if (auto failed = sync_directory(directory); !failed.ok() && first.ok()) first = failed;
  return first;
}

base::Result<std::string> find_checkpoint(const std::string& path) {
  if (has_manifest(path)) return path;
  if (is_directory(path) && number_of(name_of(path)))
    return base::error(MV_EINVAL, "{}: no {} in it: this checkpoint was not completed", path, kManifestName);
  auto places = list_checkpoints(path);
  if (!places.ok()) return places.status();
  const auto newest =
      std::find_if(places.value().rbegin(), places.value().rend(), [](const CheckpointPath& place) { return place.whole; });
  if (newest == places.value().rend()) return base::error(MV_ENOTFOUND, "{}: it contains no complete checkpoint", path);
  return newest->path;
}

base::Result<Manifest> read_manifest(const std::string& path) {
  const auto text = read_file(path + "/" + kManifestName, kMostManifestBytes);
  if (!text.ok()) return text.status();
  auto manifest = parse_manifest(text.value());
  if (!manifest.ok()) return base::error(MV_EINVAL, "{}: {}", path, manifest.status().text());
  return manifest;
}

}  // namespace mv::checkpoint
