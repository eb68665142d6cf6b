#pragma once
// A save as a part of the tables knows it, in its server and in its back-ups.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/part_file.hpp"

namespace mv::checkpoint {

/// How long a process that has taken a part over keeps its snapshot when no coordinator continues the save. New
/// back-ups of the part wait that long for their copies.
inline constexpr base::Nanos kKeepsSave = std::chrono::seconds(30);

/// The last save. A back-up takes a snapshot at the same point in the part's inputs as the server, and keeps it until the
/// server has written its file. Therefore the back-up can write the same file if the server is lost, although workers
/// have changed the tables since then.
struct HeldSave {
  std::string path;  ///< of the checkpoint
  std::vector<TableEntry> entries;  ///< of the part of server 0, whose process writes the manifest
  uint64_t inputs = 0;  ///< of the server: the number of its part's inputs when the snapshot was taken
  std::optional<std::vector<SavedTable>> tables = {};  ///< of a back-up: the values, while they are not written
  base::Nanos until = base::kNever;                    ///< of a back-up that has taken over: they are dropped then, if the save does not continue
  base::Status lost = {};                              ///< of a back-up: why it has no such values
  std::optional<FileEntry> file = {};                  ///< it is written
};

}  // namespace mv::checkpoint
