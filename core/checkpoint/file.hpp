#pragma once
// File access for checkpoints: files are written atomically, and errors name the file.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/retried.hpp"

namespace mv::checkpoint {

/// The end of the names of unfinished files.
inline constexpr std::string_view kPartSuffix = ".part";

/// A file that is written atomically. Until finish() its name ends in kPartSuffix, and the destructor removes it. finish()
/// gives it its name, and replaces an older file of that name.
class OutputFile {
 public:
  /// Reserves `bytes` on the disk if the file system can, so that a full disk is detected before anything is written.
  static base::Result<OutputFile> create(const std::string& path, uint64_t bytes);
  /// Another process may still be writing the same file: it won't be able to finish it.
  static base::Result<OutputFile> create_instead(const std::string& path, uint64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// MV_ESYSTEM with the path and the reason.
  base::Status write(uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs the file to the disk and gives it its name.
  base::Status finish();

 private:
  OutputFile(std::string path, std::string part, int fd) : path_(std::move(path)), part_path_(std::move(part)), fd_(fd) {}
  static base::Result<OutputFile> create_as(const std::string& path, std::string part, uint64_t bytes);

  std::string path_;
  std::string part_path_;  ///< its name until it is finished
  int fd_;
  bool named_ = false;  ///< renamed: part_path_ does not exist any more
  uint64_t dirty_ = 0;  ///< bytes since write-back was last started
};

/// A file that is read by offset.
class InputFile {
 public:
  /// MV_ENOTFOUND if there is none, MV_ESYSTEM for anything else.
  static base::Result<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  /// Fills all of `out` from `offset`. MV_EINVAL if the file ends before.
  base::Status read(uint64_t offset, std::span<std::byte> out) const;
  /// Advises the kernel that these bytes will be read sequentially.
  void expect(uint64_t offset, uint64_t bytes) const;

 private:
  InputFile(std::string path, int fd, uint64_t bytes) : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  std::string path_;
  int fd_;
  uint64_t bytes_;
};

/// Writes a small file atomically.
base::Status write_file(const std::string& path, std::string_view text);
/// Reads a small file. MV_ENOTFOUND, MV_ESYSTEM; MV_EINVAL beyond `most` bytes.
base::Result<std::string> read_file(const std::string& path, uint64_t most);
/// Syncs a directory: names that were made or removed in it are on the disk on return.
base::Status sync_directory(const std::string& path);
/// Makes a directory and its missing parents. Each name is on the disk on return.
base::Status make_directory(const std::string& path);
/// The names in a directory. MV_ENOTFOUND, MV_ESYSTEM.
base::Result<std::vector<std::string>> names_in(const std::string& path);
/// MV_ESYSTEM, or MV_ENOMEM: "PATH: No space left on device; free some space, then save again"
base::Status system_error(const std::string& path, int error);

/// Writes all of `bytes` to a file.
base::Status write_at(int fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes);

using base::retried;

}  // namespace mv::checkpoint
