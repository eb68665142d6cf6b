#pragma once
// MessageGroup: a group that runs its operations by messages, on the loop.

#include <memory>
#include <vector>

#include "api/call/calls.hpp"
#include "api/group/group.hpp"
#include "engine/collective/groups.hpp"

namespace mv::api {

class MessageGroup final : public Group, public std::enable_shared_from_this<MessageGroup> {
 public:
  MessageGroup(Calls& calls, collective::GroupRef group, std::vector<int64_t> members)
      : calls_(calls), group_(std::move(group)), members_(std::move(members)) {}
  ~MessageGroup() override;
  /// Opens a group of these workers, or of all workers if the list is empty.
  static base::Result<GroupRef> open(Calls& calls, std::vector<int64_t> workers, const CallOptions& options);
  /// Joins the group that grows by this name.
  static base::Result<GroupRef> join(Calls& calls, const std::string& name, const CallOptions& options);

  const collective::GroupRef& engine() const { return group_; }
  /// Sets what info() says of all-reduces. Before the group is handed to its caller.
  void set_handover(const std::string& by, const std::string& why) {
    collective_ = by;
    collective_why_ = why;
  }
  /// Excludes earlier operations from info(), because the caller did not make them.
  void count_from_here() {
    before_ = info();
    calls_.on_loop([this] { group_->count_from_here(); });
  }
  GroupInfo info() override;
  const std::vector<int64_t>& members() const override { return members_; }
  Started run(collective::Operation&& operation, const CallOptions& options) override;
  base::Result<collective::Shape> drain(const CallOptions& options) override;
  base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) override;
  base::Result<GroupRef> shrink(const CallOptions& options) override;
  base::Result<GroupRef> grow(const Growth& growth, const CallOptions& options) override { return grow(*this, growth, options); }
  /// The ranks agree by an operation of `group`, which is this group or uses it for its messages.
  base::Result<GroupRef> grow(Group& group, const Growth& growth, const CallOptions& options);
  base::Status close() override;
  /// Starts close() without waiting for its end.
  void leave() noexcept;
  base::Status abort(const std::string& reason) override;
  void give_up(const base::Status& why) noexcept override;
  /// Abandons a group that could not be returned to the caller that opened or shrank it. No other call follows.
  void abandon(const base::Status& why) noexcept;

 private:
  class ManualReduction;
  struct Opened;
  base::Result<bool> has_to_grow(Group& group, const Growth& growth, const CallOptions& options);
  static base::Result<GroupRef> finish_opening(Calls& calls, const std::shared_ptr<Opened>& opened, const CallOptions& options, transport::Task begin);
  static void abandon(Calls& calls, collective::GroupRef group, const base::Status& why) noexcept;

  Calls& calls_;
  collective::GroupRef group_;
  const std::vector<int64_t> members_;
  std::string collective_ = "own", collective_why_ = "the group has one rank";
  GroupInfo before_;  ///< what info() subtracts
};

}  // namespace mv::api
