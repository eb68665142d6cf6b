#include "runtime/keeper/folder_registry.hpp"

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

/// The bytes that processes lock.
constexpr off_t kOwner = 0, kMembers = 1;

/// A lock of the open file. Threads and forks do not disturb it, unlike those of processes.
struct flock lock_of(off_t byte, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

/// False, with errno, if the lock can't be set: EAGAIN or EACCES if another one excludes it.
bool set_lock(const transport::Fd& fd, off_t byte, short type) {
  struct flock lock = lock_of(byte, type);
  return base::retried([&] { return ::fcntl(fd.get(), F_OFD_SETLK, &lock); }) == 0;
}

/// Whether the file is still the one at the path: somebody may have deleted it.
bool is_at(const transport::Fd& fd, const std::string& path) {
  struct stat here {
  }, there{};
  return ::fstat(fd.get(), &here) == 0 && ::stat(path.c_str(), &there) == 0 && here.st_ino == there.st_ino;
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

FolderRegistry::FolderRegistry(const Address& address) : folder_(address.folder), path_(address.folder + "/" + address.name + ".polyverso") {}

/// Opens the file, and nothing else: a FIFO would wait for its other end.
transport::Fd FolderRegistry::open(int flags) const {
  transport::Fd fd(base::retried([&] { return ::open(path_.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644); }));
  struct stat about{};
  if (!fd || (::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode))) return fd;
  errno = ESPIPE;
  return transport::Fd();
}

base::Status FolderRegistry::failure(const char* what, int why) const {
  struct stat about{};
  if (::lstat(path_.c_str(), &about) == 0 && !S_ISREG(about.st_mode))
    return base::error(MV_EINVAL, "keeper: {} is not a regular file: remove it, or use another name", path_);
  if (why == ENOENT) return base::error(MV_EINVAL, "keeper: there is no folder {}: make it, on a file system that all processes share", folder_);
  if (why == ENOLCK || why == ENOSYS || why == EOPNOTSUPP || why == EINVAL)
    return base::error(MV_ESYSTEM, "keeper: the file system of {} has no locks ({}): mount it with locks, or use etcd", folder_, std::strerror(why));
  return base::error(MV_ESYSTEM, "keeper: can't {} {}: {}", what, path_, std::strerror(why));
}

bool FolderRegistry::pause(base::Nanos span) {
  std::unique_lock lock(mutex_);
  canceling_.wait_for(lock, span, [this] { return canceled_; });
  return !canceled_;
}

base::Result<std::optional<Entry>> FolderRegistry::take(const Entry& entry, bool is_member, Deadline deadline) {
  own_ = entry;
  for (int looks = 0;; ++looks) {
    transport::Fd fd = open(O_RDWR | O_CREAT);
    if (!fd) return failure("open", errno);
    if (set_lock(fd, kOwner, F_WRLCK)) {
      if (!is_at(fd, path_)) continue;
      if (!is_member && !set_lock(fd, kMembers, F_WRLCK)) {
        if (errno != EAGAIN && errno != EACCES) return failure("lock", errno);
        // Of a process that a member is about to replace.
        if (const auto gone = parse_entry(content_of(fd.get()).value_or(""))) return std::optional(*gone);
        return base::error(MV_ESTATE, "keeper: members of the cluster that has {} are alive, and the file does not say which process had the name", path_);
      }
      set_lock(fd, kMembers, F_UNLCK);
      // In one write over all of the last entry: a process that is killed here leaves the one or the other.
      std::string text = write_entry(entry);
      text.resize(std::max(text.size(), content_of(fd.get()).value_or("").size()), '\n');
      if (::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) || ::fsync(fd.get()) != 0) return failure("write", errno);
      locked_ = std::move(fd);
      attending_.reset();
      return std::optional<Entry>();
    }
    if (errno != EAGAIN && errno != EACCES) return failure("lock", errno);
    auto found = look(deadline);
    if (!found.ok() || found.value()) return found;
    if (looks >= kMostLooks) return base::error(MV_ESTATE, "keeper: another process has locked {}, and has not written its address", path_);
    if (!pause(kLookAgain)) return base::Status(MV_ECANCELED, "the request was cancelled");
  }
}

base::Result<std::optional<Entry>> FolderRegistry::look(Deadline) {
  const transport::Fd fd = open(O_RDONLY);
  if (!fd && errno == ENOENT && ::access(folder_.c_str(), X_OK) == 0) return std::optional<Entry>();
  if (!fd) return failure("open", errno);
  struct flock lock = lock_of(kOwner, F_RDLCK);
  if (base::retried([&] { return ::fcntl(fd.get(), F_OFD_GETLK, &lock); }) != 0) return failure("see the lock of", errno);
  if (lock.l_type == F_UNLCK) return std::optional<Entry>();  // of a process that has ended
  const auto text = content_of(fd.get());
  if (!text) return failure("read", errno);
  return parse_entry(*text);  // nothing while it is being written
}

base::Status FolderRegistry::wait(Deadline deadline) {
  const base::Nanos left = deadline - std::chrono::steady_clock::now();
  return pause(std::clamp<base::Nanos>(left, 0ns, kLookAgain)) ? base::Status() : base::Status(MV_ECANCELED, "the request was cancelled");
}

base::Status FolderRegistry::keep(Deadline) {
  const transport::Fd fd = open(O_RDONLY);
  const auto text = fd ? content_of(fd.get()) : std::nullopt;
  const auto entry = text ? parse_entry(*text) : std::nullopt;
  if (entry && *entry == own_) return {};
  if (entry && !is_at(locked_, path_))
    return base::error(MV_ESTATE, "{} was removed, and pid {} on {}, at {}, has made it again: it has the name now", path_, entry->pid, entry->host, entry->address);
  if (entry)
    return base::error(MV_ESTATE,
                       "pid {} on {}, at {}, has written its address into {}, although this process has locked it: the file system's locks do not "
                       "reach other machines",
                       entry->pid, entry->host, entry->address, path_);
  return base::error(MV_EUNREACHABLE, "{} can't be read any more, or was changed", path_);
}

void FolderRegistry::attend(bool attends) {
  if (attends && attending_ && is_at(attending_, path_)) return;
  attending_ = attends ? open(O_RDWR) : transport::Fd();
  // The process that claims the name may have this byte for a moment.
  for (int tries = 0; attending_ && !set_lock(attending_, kMembers, F_RDLCK);)
    if (++tries == kMostLooks || !pause(kLookAgain)) attending_.reset();
}

FolderRegistry::~FolderRegistry() {
  if (!attending_) return;
  attending_.reset();
  // The last member removes the file of a name that nobody has.
  locked_ = open(O_RDWR);
  if (!locked_ || !set_lock(locked_, kOwner, F_WRLCK) || !is_at(locked_, path_)) return;
  release({});
}

void FolderRegistry::release(Deadline) {
  // The file goes while it is still locked, so that it can't be another process's. Members that may take the name over
  // need it.
  if (locked_ && set_lock(locked_, kMembers, F_WRLCK)) ::unlink(path_.c_str());
  locked_.reset();
}

void FolderRegistry::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  canceled_ = true;
  canceling_.notify_all();
}

void FolderRegistry::abandon_after_fork() noexcept {
  locked_.reset();
  attending_.reset();
}

}  // namespace mv::runtime::keeper
