#pragma once
// A user's call: where the loop leaves the result and the caller finds it.

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

  /// Whose adds it is among; an error of it that nobody asks for is this table's. Set before it begins.
  void set_table(const table::TableViewRef& table) { table_ = table; }
  /// On the loop: nobody will ask for the call's end. `failed` hears of it if it is an error.
  void release(std::function<void(table::TableView* table, const base::Status& error)> failed);

  /// Of a group of calls: there will be no more parts.
  void close_group(std::function<base::Status()> finish);
  /// Of a group of calls: a part has failed.
  bool has_failed() const;
  /// Of a group of calls: the parts that are not over. They may be by the time that somebody looks at them.
  std::vector<std::shared_ptr<Call>> open_parts() const;

 private:
  /// Links it into the list of those that have finished, which wakes the waiters.
  void ended(const base::Status& status) noexcept override;
  void add_part(Call* part);
  void drop_part(Call* part) noexcept;
  void part_over(Call* part, const base::Status& status) noexcept;
  void let_go(std::unique_lock<std::mutex> lock) noexcept;

  FinishedList& finished_;
  const bool announces_;  ///< Node::poll() hands it out
  const int64_t tag_;
  const std::shared_ptr<Call> group_;  ///< whose part it is, or null
  table::TableViewRef table_;
  std::function<void(table::TableView*, const base::Status&)> released_;

  // The list's, under its lock.
  friend class FinishedList;
  Call* before_ = nullptr;
  Call* behind_ = nullptr;
  bool is_listed_ = false;

  // Of a group.
  mutable std::mutex mutex_;
  size_t open_ = 1;  ///< parts, and one more until close_group()
  std::unordered_set<Call*> parts_;
  base::Status first_error_;
  std::function<base::Status()> finish_;
};

/// Finished asynchronous calls that somebody still has and poll() has not handed out, and the descriptor that is readable while there are
/// any, or somebody says so. Any thread. Calls link themselves into it, so that nothing is allocated when one ends.
class FinishedList {
 public:
  /// `wake`: wakes those that wait for a call, after each that ends.
  explicit FinishedList(std::function<void()> wake);
  ~FinishedList();
  FinishedList(const FinishedList&) = delete;
  FinishedList& operator=(const FinishedList&) = delete;

  /// A call that is over: listed if poll() is to hand it out. Wakes its waiters.
  void finished(Call& call, bool is_listed) noexcept;
  void drop(Call& call) noexcept;
  /// Tags, in the order in which the calls have finished.
  std::vector<int64_t> take(size_t most);
  /// Whether the descriptor is readable without tags too.
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
