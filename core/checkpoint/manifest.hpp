#pragma once
// The manifest of a checkpoint, which lists its files and tables. docs/checkpoints.md describes the format.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "shard/spec.hpp"
#include "shard/updater/progress.hpp"

namespace mv::checkpoint {

inline constexpr uint64_t kFormat = 1;
inline constexpr const char* kManifestName = "manifest.json";

struct TableEntry {
  shard::Spec spec;            ///< as the table was created
  shard::UpdaterSpec updater;  ///< the updater at the time of the save
  uint64_t clock = 0;          ///< of the slowest worker
  shard::Mark mark;            ///< in a server's file: the progress of its updater
};

/// One server's file.
struct FileEntry {
  std::string name;  ///< within the checkpoint
  uint64_t bytes = 0;
  std::string checksum;  ///< of its header, which contains the checksums of the data
  bool operator==(const FileEntry&) const = default;
};

struct Manifest {
  uint64_t number = 0;
  int64_t time = 0;              ///< seconds since 1970
  std::vector<FileEntry> files;  ///< by server
  std::vector<TableEntry> tables;
};

/// The name of a server's file.
std::string file_name(uint64_t server);

std::string to_json(const Manifest& manifest);
/// Parses untrusted text. MV_EINVAL with the reason if it is not a valid manifest.
base::Result<Manifest> parse_manifest(std::string_view text);

}  // namespace mv::checkpoint
