#pragma once
// Writing and reading the file of one server.

#include <atomic>
#include <functional>
#include <span>

#include "checkpoint/file.hpp"
#include "checkpoint/part.hpp"
#include "shard/shard.hpp"
#include "shard/snapshot.hpp"

namespace mv::checkpoint {

/// A table's part to write.
struct SavedTable {
  TableEntry entry;
  shard::Range rows;  ///< dense: the rows of this part
  std::unique_ptr<shard::Snapshot> snapshot;
};

/// Writes this server's file into the checkpoint at `path`. Reads each snapshot once and releases it as soon as it is
/// written. MV_ECANCELED soon after `given_up` becomes true.
/// @param again  another process has begun to write the same file, and may not have stopped: it won't be able to finish it
base::Result<FileEntry> write_part(const std::string& path, uint64_t number, uint64_t server, uint64_t servers, bool again,
                                   std::span<SavedTable> tables, const std::atomic<bool>& given_up);

/// An existing file of one server, open for reading. Errors name it.
class PartFile {
 public:
  static base::Result<PartFile> open(const std::string& path);

  const PartLayout& part() const { return part_; }
  /// The table with this name, or null. Uses an index, because a checkpoint may have very many tables.
  const PartTable* find(std::string_view table) const;
  uint64_t bytes() const { return file_.bytes(); }
  /// The checksum of the header.
  const std::string& checksum() const { return checksum_; }
  /// Reads all data and compares it with its checksums. Also checks that every id is valid in its table.
  base::Status verify(const std::atomic<bool>& given_up) const;
  /// Passes the rows of a table to `take`, in order, a few MiB at a time; of a dense table only those in `wanted`.
  base::Status read(const PartTable& table, const shard::Range& wanted,
                    const std::function<base::Status(const shard::Rows&)>& take) const;

 private:
  PartFile(InputFile file, PartLayout part, std::string checksum);
  base::Status verify(const Tensor& tensor, const shard::Spec* ids_of, std::vector<std::byte>& buffer,
                      const std::atomic<bool>& given_up) const;

  InputFile file_;
  PartLayout part_;
  std::vector<size_t> by_name_;  ///< indexes into part_.tables, sorted by name
  std::string checksum_;
};

}  // namespace mv::checkpoint
