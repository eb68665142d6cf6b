#pragma once
// SharedGroup: a group whose ranks all share memory. Its operations run through intranode/ on the callers' own threads.
// Opening, shrinking, the detection of losses, sends and receives stay with the message group below. The ranks agree on
// custom reductions, gathers, scatters and alltoalls in shared memory, and exchange their values by messages.

#include <atomic>
#include <memory>

#include "api/group/message_group.hpp"
#include "api/group/shared_queue.hpp"
#include "intranode/rank_context.hpp"

namespace mv::api {

class SharedGroup final : public Group {
 public:
  /// Moves an opened group to shared memory if all ranks see each other's memory; otherwise returns it unchanged.
  /// Collective: all ranks decide alike.
  static base::Result<GroupRef> over(Calls& calls, base::Result<GroupRef> opened, const CallOptions& options);

  /// @param tuning  the lowest rank's
  SharedGroup(Calls& calls, std::shared_ptr<MessageGroup> messages, const std::vector<intranode::Memory>& memory, const intranode::Tuning& tuning);
  ~SharedGroup() override;

  GroupInfo info() override;
  /// Which algorithm each class of all-reduces uses, and why.
  std::vector<intranode::Decision> decisions() const { return context_->decisions(); }
  const std::vector<int64_t>& members() const override { return messages_->members(); }
  Started run(collective::Operation&& operation, const CallOptions& options) override;
  base::Result<collective::Shape> drain(const CallOptions& options) override;
  base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) override;
  base::Result<GroupRef> shrink(const CallOptions& options) override;
  base::Result<GroupRef> grow(const Growth& growth, const CallOptions& options) override { return messages_->grow(*this, growth, options); }
  base::Status close() override;
  base::Status abort(const std::string& reason) override;
  void give_up(const base::Status& why) noexcept override { queue_->give_up(why); }

 private:
  static base::Result<GroupRef> over(Calls& calls, const std::shared_ptr<MessageGroup>& messages, const CallOptions& options);
  base::Status by_messages(const collective::Operation& operation, base::Nanos deadline);
  Started await(const std::shared_ptr<Call>& call, const CallOptions& options);
  base::Status interrupted();
  void keep_tuning() noexcept;

  Calls& calls_;
  const std::shared_ptr<MessageGroup> messages_;
  const std::shared_ptr<intranode::RankContext> context_;  ///< shared with the loop, which reports losses to it
  const std::shared_ptr<SharedQueue> queue_;
  std::atomic<bool> is_kept_{false};  ///< the results of the trials are in the user's cache
};

}  // namespace mv::api
