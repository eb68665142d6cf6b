#pragma once
// One server's file on the disk.

#include <atomic>
#include <functional>
#include <span>

#include "checkpoint/file.hpp"
#include "checkpoint/part.hpp"
#include "shard/shard.hpp"
#include "shard/snapshot.hpp"

namespace mv::checkpoint {

/// A table's part as it is to be written down.
struct SavedTable {
  TableEntry entry;
  shard::Range rows;  ///< dense: which these are
  std::unique_ptr<shard::Snapshot> snapshot;
};

/// Writes this server's file into the checkpoint at `path`. The snapshots are read once, each let go as soon as it is
/// written. MV_ECANCELED soon after `given_up` has become true.
base::Result<FileEntry> write_part(const std::string& path, uint64_t number, uint64_t server, uint64_t servers,
                                   std::span<SavedTable> tables, const std::atomic<bool>& given_up);

/// A file that is there. Errors name it.
class PartFile {
 public:
  static base::Result<PartFile> open(const std::string& path);

  const Part& part() const { return part_; }
  /// The table of this name, or null. A checkpoint may have very many.
  const PartTable* find(std::string_view table) const;
  uint64_t bytes() const { return file_.bytes(); }
  /// Of the header.
  const std::string& checksum() const { return checksum_; }
  /// Reads the data, and compares it with its checksums; every id must be one of its table.
  base::Status verify(const std::atomic<bool>& given_up) const;
  /// Hands over the rows of a table, in order, a few MiB at a time; dense ones as far as they overlap with `wanted`.
  base::Status read(const PartTable& table, const shard::Range& wanted,
                    const std::function<base::Status(const shard::Rows&)>& take) const;

 private:
  PartFile(InputFile file, Part part, std::string checksum);
  base::Status verify(const Tensor& tensor, const shard::Spec* ids_of, std::vector<std::byte>& buffer,
                      const std::atomic<bool>& given_up) const;

  InputFile file_;
  Part part_;
  std::vector<size_t> by_name_;  ///< places in part_.tables
  std::string checksum_;
};

}  // namespace mv::checkpoint
