#include "checkpoint/claim.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "checkpoint/file.hpp"

namespace mv::checkpoint {

namespace {

constexpr time_t kAbandonedAfter = 3600;
constexpr uint64_t kMostClaimBytes = 4096;

/// The kernel's boot id: locks that were taken in this boot on this machine end with their processes.
std::string kernel_identity() {
  char text[64];
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  const std::string_view whole(text, got > 0 ? static_cast<size_t>(got) : 0);
  return std::string(whole.substr(0, whole.find('\n')));
}

/// True if nothing at `path`, or directly in it, has changed for an hour.
bool is_old(const std::string& path) {
  struct stat stat {};
  if (::stat(path.c_str(), &stat) != 0) return false;
  time_t newest = stat.st_mtime;
  const auto names = names_in(path);
  if (!names.ok()) return false;
  for (const std::string& name : names.value())
    if (::stat((path + "/" + name).c_str(), &stat) == 0) newest = std::max(newest, stat.st_mtime);
  return std::time(nullptr) - newest >= kAbandonedAfter;
}

}  // namespace

base::Result<std::shared_ptr<Claim>> Claim::take(const std::string& path) {
  const std::string name = path + "/" + kClaimName;
  const int fd = retried([&] { return ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (fd < 0) return system_error(name, errno);
  const std::shared_ptr<Claim> claim(new Claim(fd));
  // If this file system has no locks, the file gets no identity, and age decides.
  if (retried([&] { return flock(fd, LOCK_EX | LOCK_NB); }) != 0) return claim;
  const std::string identity = fmt::format("{}\nprocess {}\n", kernel_identity(), getpid());
  if (auto failed = write_at(fd, name, 0, std::as_bytes(std::span(identity))); !failed.ok()) return failed;
  return claim;
}

base::Result<std::shared_ptr<Claim>> Claim::take_over(const std::string& path) {
  unlink((path + "/" + kClaimName).c_str());
  return take(path);
}

bool Claim::counts(const std::string& path) const {
  struct stat ours {}, there {};
  if (fstat(fd_, &ours) != 0 || ::stat((path + "/" + kClaimName).c_str(), &there) != 0) return false;
  return ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

Claim::~Claim() { close(fd_); }

bool is_abandoned(const std::string& path) {
  const std::string name = path + "/" + kClaimName;
  const int fd = retried([&] { return ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); });
  if (fd < 0) return errno == ENOENT && is_old(path);
  const std::unique_ptr<const int, decltype([](const int* open) { close(*open); })> closed_at_end(&fd);
  if (retried([&] { return flock(fd, LOCK_EX | LOCK_NB); }) != 0) return errno != EWOULDBLOCK && is_old(path);
  // The identity is written under the lock. If it is there, the lock was taken and has been released.
  const auto text = read_file(name, kMostClaimBytes);
  const std::string here = kernel_identity();
  return (text.ok() && !here.empty() && text.value().starts_with(here + "\n")) || is_old(path);
}

}  // namespace mv::checkpoint
