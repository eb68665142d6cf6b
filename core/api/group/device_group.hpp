#pragma once
// DeviceGroup: a group whose ranks may all have arrays on devices. All-reduces of such arrays go between the devices where
// that is possible (DeviceReducer), and everything else goes to the group below, which uses shared memory or messages.
//
// An all-reduce about which the ranks ask each other runs on a thread of the group, and so does everything that is called
// before it ends: the order of the operations below must be the same on all ranks.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "api/group/device_reducer.hpp"
#include "api/group/message_group.hpp"

namespace mv::api {

/// Whether this process may have devices whose arrays its groups reduce.
bool may_use_devices(Calls& calls);

/// Any thread.
class DeviceGroup final : public Group, public std::enable_shared_from_this<DeviceGroup> {
 public:
  /// @param below     carries out operations on the host: `messages`, or a SharedGroup that uses it
  DeviceGroup(Calls& calls, GroupRef below, std::shared_ptr<MessageGroup> messages);
  ~DeviceGroup() override;

  const GroupRef& below() const { return below_; }
  GroupInfo info() override;
  const std::vector<int64_t>& members() const override { return below_->members(); }
  bool takes_devices(const collective::Operation& operation) const override { return reducer_.is_in_use() && DeviceReducer::suits(operation); }
  Started run(collective::Operation&& operation, const CallOptions& options) override;
  base::Result<collective::Shape> drain(const CallOptions& options) override;
  base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) override;
  base::Result<GroupRef> shrink(const CallOptions& options) override;
  base::Result<GroupRef> grow(const Growth& growth, const CallOptions& options) override;
  base::Status close() override;
  base::Status abort(const std::string& reason) override;
  void give_up(const base::Status& why) noexcept override { below_->give_up(why); }

 private:
  struct Job {
    collective::Operation operation;
    std::shared_ptr<Call> call;
    uint64_t number;
    std::shared_ptr<base::Work> work;
  };
  bool is_idle() const { return jobs_.empty() && !is_busy_; }
  bool take_directly(const collective::Operation& operation, uint64_t* number);
  Started run_staged_below(collective::Operation&& operation, const CallOptions& options);
  void push(Job job);
  Started await(const std::shared_ptr<Call>& call, const CallOptions& options);
  void withdraw(const Call& call, mv_status code);
  void serve() noexcept;
  base::Status carry_out(Job& job);
  base::Status run_below(collective::Operation operation, base::Nanos deadline);
  base::Status wait_idle(base::Nanos until);
  void finish_jobs();

  Calls& calls_;
  const GroupRef below_;
  const std::shared_ptr<MessageGroup> messages_;
  DeviceReducer reducer_;

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t numbers_ = 0;  ///< of operations so far
  bool is_busy_ = false;  ///< the thread carries out a job
  bool ends_ = false;
  std::atomic<bool> has_jobs_{false};  ///< !is_idle()
  std::thread thread_;  ///< started by the first job
};

}  // namespace mv::api
