#include "table/checkpoint/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace mv::table::checkpoint {

namespace {
/// The disk begins to work after so much, instead of when all is written.
constexpr uint64_t kWriteBehind = 16 << 20;
/// A single write() takes less than 2 GiB.
constexpr size_t kMostAtOnce = 1 << 30;
}  // namespace

base::Status system_error(const std::string& path, int error) {
  return base::error(MV_ESYSTEM, "{}: {}", path, std::strerror(error));
}

// ---- out

base::Result<OutputFile> OutputFile::create(const std::string& path, uint64_t bytes) {
  const int fd = ::open((path + ".part").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return system_error(path, errno);
  OutputFile file(path, fd);
  if (bytes == 0) return file;
  int error = 0;
  while (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 && (error = errno) == EINTR) error = 0;
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS) return system_error(path, error);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), dirty_(other.dirty_) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(part_path().c_str());
}

base::Status OutputFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  dirty_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error(path_, written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  if (dirty_ < kWriteBehind) return {};
  dirty_ = 0;
  sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);  // a hint: errors come back from fdatasync()
  return {};
}

base::Status OutputFile::finish() {
  while (fdatasync(fd_) != 0)
    if (errno != EINTR) return system_error(path_, errno);
  if (rename(part_path().c_str(), path_.c_str()) != 0) return system_error(path_, errno);
  const int closed = close(std::exchange(fd_, -1));
  return closed == 0 || errno == EINTR ? base::Status() : system_error(path_, errno);
}

// ---- in

base::Result<InputFile> InputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a named pipe must not hold us
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
    const ssize_t got = pread(fd_, out.data(), std::min(out.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
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

// ---- small ones

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
    return base::error(MV_EINVAL, "{}: {} bytes; at most {} make sense", path, file.value().bytes(), most);
  std::string text(file.value().bytes(), '\0');
  if (auto failed = file.value().read(0, std::as_writable_bytes(std::span(text))); !failed.ok()) return failed;
  return text;
}

base::Status sync_directory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error(path, errno);
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;  // some network file systems sync no directories
  close(fd);
  return error == 0 ? base::Status() : system_error(path, error);
}

}  // namespace mv::table::checkpoint
