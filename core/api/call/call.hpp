#pragma once
// Call: one call of a user. The loop stores its result here and the caller reads it.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "api/call/options.hpp"
#include "base/operation.hpp"
#include "engine/table/client/operation.hpp"

namespace mv::api {

class FinishedList;

class Call final : public base::Operation {
 public:
  Call(FinishedList& finished, const CallOptions& options, base::Nanos deadline)
      : finished_(finished), announces_(options.mode == Mode::kAsync && options.tag != 0), tag_(options.tag), group_(options.group) {
    set_deadline(deadline);
    if (group_ != nullptr) group_->add_part(this);
  }
  ~Call() override;

  const base::Operation* whole() const override { return group_ != nullptr ? group_.get() : this; }
  bool is_pointless() const override { return group_ != nullptr && group_->has_failed(); }

  /// The table that the call changes. Set before the call begins. If nobody waits for the call,
  /// the table keeps its error.
  void set_table(const table::TableViewRef& table) { table_ = table; }
  /// Declares that no caller will wait for the call. `failed` receives its error, if any. On the loop.
  void release(std::function<void(table::TableView* table, const base::Status& error)> failed);

  /// For a group of calls: declares that no part will be added any more.
  void close_group(std::function<base::Status()> finish);
  /// For a group of calls: whether a part has failed.
  bool has_failed() const;
  /// For a group of calls: the unfinished parts. A part may finish before the caller looks at it.
  std::vector<std::shared_ptr<Call>> open_parts() const;

 private:
  /// Links the call into the list of finished calls, which wakes the waiters.
  void ended(const base::Status& status) noexcept override;
  void add_part(Call* part);
  void drop_part(Call* part) noexcept;
  void part_over(Call* part, const base::Status& status) noexcept;
  void let_go(std::unique_lock<std::mutex> lock) noexcept;

  FinishedList& finished_;
  const bool announces_;  ///< Node::poll() returns it
  const int64_t tag_;
  const std::shared_ptr<Call> group_;  ///< the group that it is part of, or null
  table::TableViewRef table_;
  std::function<void(table::TableView*, const base::Status&)> released_;

  // Owned by the list, under its lock.
  friend class FinishedList;
  Call* before_ = nullptr;
  Call* behind_ = nullptr;
  bool is_listed_ = false;

  // Used by groups only.
  mutable std::mutex mutex_;
  size_t open_ = 1;  ///< unfinished parts, plus one until close_group()
  std::unordered_set<Call*> parts_;
  base::Status first_error_;
  std::function<base::Status()> finish_;
};

/// The finished asynchronous calls that are still referenced and that poll() has not returned yet. Its event
/// descriptor is readable while there are any, or after also_readable(true). Any thread. The list is intrusive, so
/// ending a call allocates nothing.
class FinishedList {
 public:
  /// `wake` wakes all waiters; it runs after each call that ends.
  explicit FinishedList(std::function<void()> wake);
  ~FinishedList();
  FinishedList(const FinishedList&) = delete;
  FinishedList& operator=(const FinishedList&) = delete;

  /// Reports that a call has ended, and lists it if poll() is to return it. Wakes its waiters.
  void finished(Call& call, bool is_listed) noexcept;
  void drop(Call& call) noexcept;
  /// Tags of the calls, in the order in which the calls finished.
  std::vector<int64_t> take(size_t most);
  /// Makes the descriptor readable even while there are no tags.
  void also_readable(bool is_so) noexcept;
  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  int event_fd() const { return event_fd_; }
  /// In a forked child; async-signal-safe.
  void close_descriptor() noexcept;

 private:
  void unlink(Call& call) noexcept;
  void show() noexcept;

  const std::function<void()> wake_;
  int event_fd_;
  std::mutex mutex_;
  bool also_readable_ = false, is_readable_ = false;
  Call* first_ = nullptr;
  Call* last_ = nullptr;
  size_t size_ = 0;
  std::atomic<size_t> count_{0};
};

}  // namespace mv::api
