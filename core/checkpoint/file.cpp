#include "checkpoint/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>

namespace mv::checkpoint {

namespace {
/// Bytes after which write-back starts, so that the disk does not idle until everything is written.
constexpr uint64_t kWriteBehind = 16 << 20;
/// A single write() takes less than 2 GiB.
constexpr size_t kMostAtOnce = 1 << 30;
}  // namespace

base::Status system_error(const std::string& path, int error) {
  const std::string_view advice = error == ENOSPC || error == EDQUOT                    ? "; free some space, or choose another directory"
                                  : error == EACCES || error == EPERM || error == EROFS ? "; choose a directory that this process may write to"
                                  : error == EMFILE || error == ENFILE                  ? "; raise the limit of open files (ulimit -n)"
                                  : error == EFBIG ? "; raise the limit of file sizes (ulimit -f), or save from more servers"
                                  : error == EIO   ? "; the disk is failing: check the kernel log, or choose another directory"
                                                   : "";
  return base::error(error == ENOMEM ? MV_ENOMEM : MV_ESYSTEM, "{}: {}{}", path, std::strerror(error), advice);
}

base::Status write_at(int fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = retried([&] { return pwrite(fd, bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset)); });
    if (written <= 0) return system_error(path, written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

// ---- writing

base::Result<OutputFile> OutputFile::create(const std::string& path, uint64_t bytes) {
  return create_as(path, fmt::format("{}{}", path, kPartSuffix), bytes);
}

/// The other process renames its file at the end, under whatever name that is then.
base::Result<OutputFile> OutputFile::create_instead(const std::string& path, uint64_t bytes) {
  const size_t slash = path.rfind('/') + 1, dot = path.rfind('.');
  const std::string directory = path.substr(0, slash), stem = path.substr(slash, dot + 1 - slash);
  const auto names = names_in(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : names.value())
    if (name.starts_with(stem) && name.ends_with(kPartSuffix)) unlink((directory + name).c_str());
  return create_as(path, fmt::format("{}{}{:x}{}{}", directory, stem, std::random_device()(), path.substr(dot), kPartSuffix), bytes);
}

base::Result<OutputFile> OutputFile::create_as(const std::string& path, std::string part, uint64_t bytes) {
  const int fd = retried([&] { return ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); });
  if (fd < 0) return system_error(path, errno);
  OutputFile file(path, std::move(part), fd);
  if (bytes == 0) return file;
  const int failed = retried([&] { return fallocate(fd, 0, 0, static_cast<off_t>(bytes)); });
  if (failed != 0 && errno != EOPNOTSUPP && errno != ENOSYS) return system_error(path, errno);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_path_(std::move(other.part_path_)),
      fd_(std::exchange(other.fd_, -1)),
      named_(std::exchange(other.named_, true)),
      dirty_(other.dirty_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!named_) unlink(part_path_.c_str());
}

base::Status OutputFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  dirty_ += bytes.size();
  if (auto failed = write_at(fd_, path_, offset, bytes); !failed.ok()) return failed;
  if (dirty_ < kWriteBehind) return {};
  dirty_ = 0;
  sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);  // a hint; fdatasync() reports errors
  return {};
}

base::Status OutputFile::finish() {
  if (retried([&] { return fdatasync(fd_); }) != 0) return system_error(path_, errno);
  // Before the rename, because some network file systems report write errors only on close.
  if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return system_error(path_, errno);
  if (retried([&] { return rename(part_path_.c_str(), path_.c_str()); }) != 0) return system_error(path_, errno);
  named_ = true;
  return {};
}

// ---- reading

base::Result<InputFile> InputFile::open(const std::string& path) {
  const int fd = retried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });  // a named pipe must not block
  if (fd < 0)
    return errno == ENOENT ? base::error(MV_ENOTFOUND, "{}: there is no such file", path) : system_error(path, errno);
  struct stat stat {};
  InputFile file(path, fd, 0);
  if (fstat(fd, &stat) != 0) return system_error(path, errno);
  if (!S_ISREG(stat.st_mode)) return base::error(MV_EINVAL, "{}: is not a file", path);
  file.bytes_ = static_cast<uint64_t>(stat.st_size);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

base::Status InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = retried([&] { return pread(fd_, out.data(), std::min(out.size(), kMostAtOnce), static_cast<off_t>(offset)); });
    if (got < 0) return system_error(path_, errno);
    if (got == 0) return base::error(MV_EINVAL, "{}: ends at byte {}", path_, offset);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

void InputFile::expect(uint64_t offset, uint64_t bytes) const {
  posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_SEQUENTIAL);
}

// ---- small files and directories

base::Status write_file(const std::string& path, std::string_view text) {
  auto file = OutputFile::create(path, 0);
  if (!file.ok()) return file.status();
  if (auto failed = file.value().write(0, std::as_bytes(std::span(text))); !failed.ok()) return failed;
  return file.value().finish();
}

base::Result<std::string> read_file(const std::string& path, uint64_t most) {
  const auto file = InputFile::open(path);
  if (!file.ok()) return file.status();
  if (file.value().bytes() > most)
    return base::error(MV_EINVAL, "{}: {} bytes; the limit is {}", path, file.value().bytes(), most);
  std::string text(file.value().bytes(), '\0');
  if (auto failed = file.value().read(0, std::as_writable_bytes(std::span(text))); !failed.ok()) return failed;
  return text;
}

base::Status make_directory(const std::string& path) {
  struct stat stat {};
  if (::stat(path.c_str(), &stat) == 0 && S_ISDIR(stat.st_mode)) return {};
  const std::string parent = std::filesystem::path(path).lexically_normal().parent_path().string();
  if (!parent.empty() && parent != path)
    if (auto failed = make_directory(parent); !failed.ok()) return failed;
  if (retried([&] { return mkdir(path.c_str(), 0777); }) != 0 && errno != EEXIST) return system_error(path, errno);
  if (::stat(path.c_str(), &stat) != 0) return system_error(path, errno);
  if (!S_ISDIR(stat.st_mode)) return system_error(path, ENOTDIR);
  return sync_directory(parent.empty() ? "." : parent);
}

// Does not use std::filesystem's iterator, which ends the process when memory runs out.
base::Result<std::vector<std::string>> names_in(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (directory == nullptr) return errno == ENOENT ? base::error(MV_ENOTFOUND, "{}: there is no such directory", path) : system_error(path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return system_error(path, errno);
  return names;
}

base::Status sync_directory(const std::string& path) {
  const int fd = retried([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return system_error(path, errno);
  const int error = retried([&] { return fsync(fd); }) == 0 || errno == EINVAL ? 0 : errno;  // some network file systems cannot sync directories
  close(fd);
  return error == 0 ? base::Status() : system_error(path, error);
}

}  // namespace mv::checkpoint
