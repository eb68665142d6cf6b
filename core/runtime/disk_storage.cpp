#include "runtime/disk_storage.hpp"

#include <pthread.h>

#include <csignal>
#include <ctime>
#include <new>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "checkpoint/restore.hpp"

namespace mv::runtime {

namespace checkpoint = checkpoint;

namespace {

/// Reads no file's data.
constexpr checkpoint::Share kNothing{1, 1};

/// Returns exceptions as a status. Only a lack of memory should cause any.
template <typename Work>
auto guarded(Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return base::Status(MV_ENOMEM, "out of memory while a checkpoint was written or read");
  } catch (const std::exception& error) {
    return base::Status(MV_EINTERNAL, error.what());
  }
}

}  // namespace

void DiskStorage::run() {
  pthread_setname_np(pthread_self(), "mv-storage");
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return !jobs_.empty() || *stopping_; });
    if (*stopping_) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();  // reports its own errors; if it lacks the memory for that, the node breaks down
    } catch (const std::exception& thrown) {
      loop_.break_down(&thrown);
    }
    lock.lock();
  }
}

base::Status DiskStorage::enqueue(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  if (*stopping_) return {};
  if (!thread_.joinable())
    if (auto failed = start_thread(); !failed.ok()) return failed;
  jobs_.push_back(std::move(job));
  work_.notify_one();
  return {};
}

base::Status DiskStorage::start_thread() {
  sigset_t all, before;  // including SIGXFSZ: a file over the size limit must be an error, not the end of the process
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  base::Status status;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    status = base::error(MV_ESYSTEM, "no thread could be started for the disk: {}; raise the limit of threads (ulimit -u, pids.max), then try again",
                         error.code().message());
  } catch (const std::bad_alloc&) {
    status = base::Status(MV_ENOMEM, "out of memory while a thread was started for the disk");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void DiskStorage::stop() {
  {
    std::lock_guard lock(mutex_);
    *stopping_ = true;
    if (writing_ != nullptr) *writing_ = true;
    work_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  jobs_.clear();  // and the snapshots that they hold
}

/// Runs `work` on the thread and reports its result on the loop.
template <typename Tell, typename Work>
void DiskStorage::start(Tell told, Work work) {
  using Result = decltype(work());
  const auto tell = [this](Tell& to, Result result) {
    loop_.post([to = std::move(to), result = std::move(result), stopping = stopping_] {
      if (!*stopping) to(result);
    });
  };
  const base::Status queued = enqueue([told, work = std::move(work), tell]() mutable { tell(told, guarded(work)); });
  if (!queued.ok()) tell(told, queued);
}

// ---- server 0

void DiskStorage::begin(const std::string& directory, Told<checkpoint::CheckpointPath> told) {
  start(std::move(told), [this, directory] {
    auto place = checkpoint::begin_checkpoint(directory);
    if (place.ok()) claim_ = std::exchange(place.value().claim, nullptr);
    return place;
  });
}

void DiskStorage::take_over(const std::string& path, Told<bool> told) {
  start(std::move(told), [this, path]() -> base::Result<bool> {
    auto place = checkpoint::take_over_checkpoint(path);
    if (!place.ok()) return place.status();
    claim_ = std::exchange(place.value().claim, nullptr);
    return place.value().whole;
  });
}

void DiskStorage::complete(const std::string& path, checkpoint::Manifest manifest, uint64_t keep, Done done) {
  manifest.time = static_cast<int64_t>(std::time(nullptr));
  start(std::move(done), [this, path, manifest = std::move(manifest), keep]() -> base::Status {
    if (auto failed = check_claim(path); !failed.ok()) return failed;
    if (auto failed = checkpoint::complete_checkpoint(path, manifest); !failed.ok()) return failed;
    claim_.reset();
    // The checkpoint counts now, even if the old ones can't be removed.
    if (auto failed = checkpoint::prune_checkpoints(checkpoint::parent_of(path), keep, manifest.number); !failed.ok())
      base::log_warn("old checkpoints could not be removed: {}", failed.text());
    return {};
  });
}

void DiskStorage::discard(const std::string& path, Done done) {
  start(std::move(done), [this, path] {
    if (auto failed = check_claim(path); !failed.ok()) return failed;
    claim_.reset();
    return checkpoint::remove_checkpoint(path);
  });
}

/// This process may have been declared lost without being so.
base::Status DiskStorage::check_claim(const std::string& path) const {
  if (claim_ != nullptr && claim_->counts(path)) return {};
  return base::error(MV_EPEERLOST, "checkpoint {}: another process has taken it over, as this one was declared lost", path);
}

void DiskStorage::find(const std::string& path, Told<Found> told) {
  start(std::move(told), [path]() -> base::Result<Found> {
    for (std::string before;;) {
      auto found = checkpoint::find_checkpoint(path);
      if (!found.ok()) return found.status();
      auto manifest = checkpoint::read_manifest(found.value());
      if (manifest.ok()) return Found{std::move(found).value(), std::move(manifest).value()};
      const bool was_removed = manifest.status().code() == MV_ENOTFOUND;  // by another job, which has saved a newer one
      if (!was_removed || std::exchange(before, found.value()) == found.value()) return manifest.status();
    }
  });
}

// ---- every server

void DiskStorage::write(NewFile part, GivenUp given_up, Told<checkpoint::FileEntry> told) {
  const auto shared = std::make_shared<NewFile>(std::move(part));
  start(std::move(told), [this, shared, given_up]() -> base::Result<checkpoint::FileEntry> {
    {
      std::lock_guard lock(mutex_);
      writing_ = given_up;
      if (*stopping_) *given_up = true;
    }
    auto file = checkpoint::write_part(shared->path, shared->number, shared->server, shared->servers, shared->again, shared->tables,
                                       *given_up);
    shared->tables.clear();  // including tables that were not reached
    std::lock_guard lock(mutex_);
    writing_.reset();
    return file;
  });
}

void DiskStorage::check(const std::string& path, checkpoint::Share share, Told<checkpoint::Manifest> told) {
  start(std::move(told), [path, share, stopping = stopping_]() -> base::Result<checkpoint::Manifest> {
    auto found = checkpoint::open_sound(path, share, *stopping);
    if (!found.ok()) return found.status();
    return std::move(*found.value().manifest);
  });
}

void DiskStorage::restore(const std::string& path, std::vector<Target> targets, Done done) {
  start(std::move(done), [path, targets = std::move(targets), stopping = stopping_]() -> base::Status {
    const auto found = checkpoint::open_sound(path, kNothing, *stopping);
    if (!found.ok()) return found.status();
    for (const Target& target : targets)
      if (auto failed = checkpoint::restore_table(found.value(), target.entry, *target.shard); !failed.ok())
        return failed;
    return {};
  });
}

void DiskStorage::move(std::vector<Move> moves, Done done) {
  start(std::move(done), [moves = std::move(moves)]() mutable -> base::Status {
    for (Move& move : moves) {
      if (auto failed = checkpoint::move_table(move.entry, *move.from, *move.to); !failed.ok()) return failed;
      move.from.reset();
    }
    return {};
  });
}

}  // namespace mv::runtime
