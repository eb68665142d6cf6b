#pragma once
// A group all of whose ranks share memory: its operations go by onehost/, on the callers' own threads. What belongs to no single operation
// (opening, shrinking, reductions by hand, the news of a loss) stays with the messages' group that it stands upon.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "node/message_group.hpp"
#include "onehost/seat.hpp"

namespace mv::node {

class SharedGroup final : public Group {
 public:
  /// What was opened, over shared memory where all of its ranks can see each other's, and as it is otherwise: they find out together.
  static base::Result<GroupRef> over(MemberNode& node, base::Result<GroupRef> opened, const CallOptions& options);

  SharedGroup(MemberNode& node, std::shared_ptr<MessageGroup> messages, const std::vector<onehost::Memory>& memory);
  ~SharedGroup() override;

  GroupInfo info() override;
  const std::vector<int64_t>& members() const override { return messages_->members(); }
  Started run(collective::Operation operation, const CallOptions& options) override;
  base::Result<collective::Shape> drain(const CallOptions& options) override;
  base::Result<CustomReductionRef> custom(collective::Operation operation, const CallOptions& options) override;
  base::Result<GroupRef> shrink(const CallOptions& options) override;
  base::Status close() override;

 private:
  struct Job {
    collective::Operation operation;
    base::Nanos deadline;
    std::shared_ptr<Call> call;
    bool begun;  ///< by a caller whom a signal has called away
  };
  class Turn;

  std::shared_ptr<Call> make_call(const CallOptions& options);
  base::Status carry_out(const collective::Operation& operation, base::Nanos deadline);
  Started leave_to_thread(std::unique_lock<std::mutex> lock, Job job);
  void end_turn();
  void serve();
  base::Status broken_by(base::Status status);
  void withdraw(const std::shared_ptr<Call>& call, mv_status code);

  MemberNode& node_;
  const std::shared_ptr<MessageGroup> messages_;
  const std::shared_ptr<onehost::Seat> seat_;  ///< the loop's, too, which tells it of losses

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;  ///< an operation is under way
  bool ends_ = false;
  std::deque<Job> jobs_;  ///< for the thread, in their order
  std::thread thread_;    ///< of those who do not wait; begun by the first of them
};

}  // namespace mv::node
