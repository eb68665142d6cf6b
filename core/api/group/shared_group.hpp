#pragma once
// A group all of whose ranks share memory: its operations go through intranode/, on the callers' own threads. Opening, shrinking, reductions
// by hand and the news of a loss stay with the group of messages below.

#include <memory>

#include "api/group/message_group.hpp"
#include "api/group/shared_queue.hpp"
#include "intranode/rank_context.hpp"

namespace mv::api {

class SharedGroup final : public Group {
 public:
  /// What was opened, over shared memory where all of its ranks can see each other's, and as it is otherwise: they find out together.
  static base::Result<GroupRef> over(Calls& calls, base::Result<GroupRef> opened, const CallOptions& options);

  SharedGroup(Calls& calls, std::shared_ptr<MessageGroup> messages, const std::vector<intranode::Memory>& memory);
  ~SharedGroup() override;

  GroupInfo info() override;
  const std::vector<int64_t>& members() const override { return messages_->members(); }
  Started run(collective::Operation operation, const CallOptions& options) override;
  base::Result<collective::Shape> drain(const CallOptions& options) override;
  base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) override;
  base::Result<GroupRef> shrink(const CallOptions& options) override;
  base::Status close() override;
  void give_up(const base::Status& why) noexcept override { queue_->give_up(why); }

 private:
  static base::Result<GroupRef> over(Calls& calls, const std::shared_ptr<MessageGroup>& messages, const CallOptions& options);
  Started await(const std::shared_ptr<Call>& call, const CallOptions& options);
  base::Status interrupted();

  Calls& calls_;
  const std::shared_ptr<MessageGroup> messages_;
  const std::shared_ptr<intranode::RankContext> context_;  ///< the loop's, too, which tells it of losses
  const std::shared_ptr<SharedQueue> queue_;
};

}  // namespace mv::api
