#pragma once
// A user's call: where the loop leaves the result and the caller finds it.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/ps/operation.hpp"
#include "node/node.hpp"

namespace mv::node {

class FinishedList;

class Call final : public ps::Completion, public std::enable_shared_from_this<Call> {
 public:
  enum class Kind { kTable, kBarrier, kCheckpoint, kGroup, kCollective };

  Call(Kind kind, FinishedList& finished, const CallOptions& options)
      : kind_(kind), finished_(finished), announces_(options.mode == Mode::kAsync && options.tag != 0), tag_(options.tag), group_(options.group) {
    if (group_ != nullptr) group_->add_part(this);
  }

  /// Once. Any thread; off the loop it wakes those that wait for the call.
  void complete(const base::Status& status) noexcept override;

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Once done().
  const base::Status& status() const { return status_; }
  Kind kind() const { return kind_; }

  /// Of a call that no engine carries out: what ends it with a code, before withdraw() returns. Set before it begins.
  void set_withdrawal(std::function<void(mv_status)> withdrawal) { withdrawal_ = std::move(withdrawal); }
  /// False: it is an engine's.
  bool withdraw(mv_status code) const {
    if (withdrawal_) withdrawal_(code);
    return static_cast<bool>(withdrawal_);
  }

  /// kGroup: there will be no more parts.
  void close_group(std::function<base::Status()> finish);
  /// kGroup: the parts that are not over. They may be by the time that somebody looks at them.
  std::vector<const Call*> open_parts() const;

 private:
  friend class FinishedList;
  void add_part(const Call* part);
  void part_over(const Call* part, const base::Status& status) noexcept;
  void let_go(std::unique_lock<std::mutex> lock) noexcept;

  const Kind kind_;
  FinishedList& finished_;
  const bool announces_;  ///< Node::poll() hands it out
  const int64_t tag_;
  const std::shared_ptr<Call> group_;  ///< whose part it is, or null
  std::function<void(mv_status)> withdrawal_;
  base::Status status_;
  std::atomic<bool> done_{false};
  // FinishedList's, under its lock.
  std::shared_ptr<Call> next_finished_;
  Call* before_finished_ = nullptr;
  bool listed_ = false, forgotten_ = false;

  // Of a group.
  mutable std::mutex mutex_;
  size_t open_ = 1;  ///< parts, and one more until close_group()
  std::unordered_set<const Call*> parts_;
  base::Status first_error_;
  std::function<base::Status()> finish_;
};

/// Finished asynchronous calls, whose tags a poll hands out, and the descriptor that is readable while there are any, or somebody says
/// so. Any thread. A finished call is itself the list's entry, so that nothing is allocated when it ends.
class FinishedList {
 public:
  /// `wake`: wakes those that wait for a call, after each that ends.
  explicit FinishedList(std::function<void()> wake);
  ~FinishedList();
  FinishedList(const FinishedList&) = delete;
  FinishedList& operator=(const FinishedList&) = delete;

  /// A call that is over: listed if a poll is to hand it out; its waiters are woken.
  void finished(const std::shared_ptr<Call>& call) noexcept;
  std::vector<int64_t> take(size_t most);
  /// The caller has heard otherwise that it is over.
  void remove(Call& call) noexcept;
  /// Whether the descriptor is readable without tags too.
  void also_readable(bool is_so) noexcept;
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  int event_fd() const { return event_fd_; }
  /// In a forked child; async-signal-safe.
  void close_descriptor() noexcept;

 private:
  void list(const std::shared_ptr<Call>& call) noexcept;
  std::shared_ptr<Call> unlink(Call& call) noexcept;
  void show() noexcept;

  const std::function<void()> wake_;
  int event_fd_;
  std::mutex mutex_;
  bool also_readable_ = false, is_readable_ = false;
  std::shared_ptr<Call> first_;
  Call* last_ = nullptr;
  std::atomic<size_t> count_{0};
};

}  // namespace mv::node
