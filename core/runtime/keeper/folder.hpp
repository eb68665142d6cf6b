#pragma once
// A store of names in a folder that all machines share.

#include <condition_variable>
#include <mutex>

#include "runtime/keeper/registry.hpp"
#include "transport/fd.hpp"

namespace mv::runtime::keeper {

/// Each name has a file, which contains the entry. The process that has the name holds a lock on the whole file. When
/// the process ends, in whatever way, the kernel or the file server releases the lock. So an entry without a lock
/// belongs to a dead process.
class Folder final : public Registry {
 public:
  explicit Folder(const Address& address);

  base::Result<std::optional<Entry>> claim(const Entry& entry, Deadline deadline) override;
  base::Result<std::optional<Entry>> take_over(const Entry& entry, Deadline deadline) override { return claim(entry, deadline); }  // the lock of a dead process is free
  base::Result<std::optional<Entry>> look(Deadline deadline) override;
  base::Status wait(Deadline deadline) override;
  base::Status keep(Deadline deadline) override;
  base::Nanos keep_every() const override { return std::chrono::seconds(1); }
  void release(Deadline deadline) override;
  std::string kept_by() const override { return "a lock on its file"; }
  base::Nanos free_after() const override { return {}; }
  void cancel() noexcept override;
  void abandon_after_fork() noexcept override;

 private:
  base::Status failure(const char* what, int why) const;
  bool pause(base::Nanos span);

  const std::string folder_, path_;
  Entry own_;
  transport::Fd locked_;
  std::mutex mutex_;
  std::condition_variable canceling_;
  bool canceled_ = false;  // under mutex_
};

}  // namespace mv::runtime::keeper
