#include "runtime/keeper/folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/retried.hpp"

namespace mv::runtime::keeper {

namespace {

using namespace std::chrono_literals;
constexpr size_t kMostEntryBytes = 4096;
constexpr base::Nanos kLookAgain = 50ms;
/// How long the process that has the lock may take to write its entry.
constexpr int kMostLooks = 100;

/// A lock of the open file, of the whole of it. Threads and forks do not disturb it, unlike those of processes.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// nullopt: it can't be read.
std::optional<std::string> content_of(int fd) {
  std::string text(kMostEntryBytes, '\0');
  const ssize_t got = base::retried([&] { return ::pread(fd, text.data(), text.size(), 0); });
  if (got < 0) return std::nullopt;
  text.resize(static_cast<size_t>(got));
  return text;
}

}  // namespace

Folder::Folder(const Address& address) : folder_(address.folder), path_(address.folder + "/" + address.name + ".polyverso") {}

base::Status Folder::failure(const char* what, int why) const {
  if (why == ENOENT) return base::error(MV_EINVAL, "keeper: there is no folder {}: make it, on a file system that all processes share", folder_);
  if (why == ENOLCK || why == ENOSYS || why == EOPNOTSUPP || why == EINVAL)
    return base::error(MV_ESYSTEM, "keeper: the file system of {} has no locks ({}): mount it with locks, or use etcd", folder_, std::strerror(why));
  return base::error(MV_ESYSTEM, "keeper: can't {} {}: {}", what, path_, std::strerror(why));
}

bool Folder::pause(base::Nanos span) {
  std::unique_lock lock(mutex_);
  canceling_.wait_for(lock, span, [this] { return canceled_; });
  return !canceled_;
}

base::Result<std::optional<Entry>> Folder::claim(const Entry& entry, Deadline deadline) {
  own_ = entry;
  for (int looks = 0;; ++looks) {
    transport::Fd fd(base::retried([&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644); }));
    if (!fd) return failure("open", errno);
    struct flock lock = whole_file(F_WRLCK);
    if (base::retried([&] { return ::fcntl(fd.get(), F_OFD_SETLK, &lock); }) == 0) {
      struct stat here {
      }, there{};
      if (::fstat(fd.get(), &here) != 0 || ::stat(path_.c_str(), &there) != 0 || here.st_ino != there.st_ino) continue;  // somebody has deleted it
      const std::string text = write_entry(entry);
      if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
          ::fsync(fd.get()) != 0)
        return failure("write", errno);
      locked_ = std::move(fd);
      return std::optional<Entry>();
    }
    if (errno != EAGAIN && errno != EACCES) return failure("lock", errno);
    auto found = look(deadline);
    if (!found.ok() || found.value()) return found;
    if (looks >= kMostLooks) return base::error(MV_ESTATE, "keeper: another process has locked {}, and has not written its address", path_);
    if (!pause(kLookAgain)) return base::Status(MV_ECANCELED, "the request was cancelled");
  }
}

base::Result<std::optional<Entry>> Folder::look(Deadline) {
  const transport::Fd fd(base::retried([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); }));
  if (!fd && errno == ENOENT && ::access(folder_.c_str(), X_OK) == 0) return std::optional<Entry>();
  if (!fd) return failure("open", errno);
  struct flock lock = whole_file(F_RDLCK);
  if (base::retried([&] { return ::fcntl(fd.get(), F_OFD_GETLK, &lock); }) != 0) return failure("see the lock of", errno);
  if (lock.l_type == F_UNLCK) return std::optional<Entry>();  // of a process that has ended
  const auto text = content_of(fd.get());
  if (!text) return failure("read", errno);
  return parse_entry(*text);  // nothing while it is being written
}

base::Status Folder::wait(Deadline deadline) {
  const base::Nanos left = deadline - std::chrono::steady_clock::now();
  return pause(std::clamp<base::Nanos>(left, 0ns, kLookAgain)) ? base::Status() : base::Status(MV_ECANCELED, "the request was cancelled");
}

base::Status Folder::keep(Deadline) {
  const transport::Fd fd(base::retried([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); }));
  const auto text = fd ? content_of(fd.get()) : std::nullopt;
  const auto entry = text ? parse_entry(*text) : std::nullopt;
  if (entry && *entry == own_) return {};
  if (entry)
    return base::error(MV_ESTATE,
                       "pid {} on {}, at {}, has written its address into {}, although this process has locked it: the file system's locks do not "
                       "reach other machines",
                       entry->pid, entry->host, entry->address, path_);
  return base::error(MV_EUNREACHABLE, "{} can't be read any more, or was changed", path_);
}

void Folder::release(Deadline) {
  // The file goes while it is still locked, so that it can't be another process's.
  if (locked_) ::unlink(path_.c_str());
  locked_.reset();
}

void Folder::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  canceled_ = true;
  canceling_.notify_all();
}

void Folder::abandon_after_fork() noexcept { locked_.reset(); }

}  // namespace mv::runtime::keeper
