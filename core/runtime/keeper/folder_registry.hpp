#pragma once
// A store of names in a folder that all machines share.

#include <condition_variable>
#include <mutex>

#include "runtime/keeper/registry.hpp"
#include "transport/fd.hpp"

namespace mv::runtime::keeper {

/// Each name has a file, which contains the entry. The process that has the name holds a lock on the first byte. When
/// the process ends, in whatever way, the kernel or the file server releases the lock. So an entry without a lock
/// belongs to a dead process. Members that may take the name over share a lock on the second byte.
class FolderRegistry final : public Registry {
 public:
  explicit FolderRegistry(const Address& address);
  ~FolderRegistry() override;

  base::Result<std::optional<Entry>> claim(const Entry& entry, Deadline deadline) override { return take(entry, /*is_member=*/false, deadline); }
  base::Result<std::optional<Entry>> take_over(const Entry& entry, const std::vector<std::string>&, Deadline deadline) override { return take(entry, /*is_member=*/true, deadline); }
  void attend(bool attends) override;
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
  base::Result<std::optional<Entry>> take(const Entry& entry, bool is_member, Deadline deadline);
  transport::Fd open(int flags) const;
  base::Status failure(const char* what, int why) const;
  bool pause(base::Nanos span);

  const std::string folder_, path_;
  Entry own_;
  transport::Fd locked_;     ///< while this process has the name
  transport::Fd attending_;  ///< while it may take the name over
  std::mutex mutex_;
  std::condition_variable canceling_;
  bool canceled_ = false;  // under mutex_
};

}  // namespace mv::runtime::keeper
