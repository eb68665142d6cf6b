#pragma once
// Collects small fire-and-forget changes, so that those of a burst travel in few messages.
//
// The first change of a burst posts a task, as any call does. Until the loop runs the task, later changes of the same
// form only append their bytes. A message contains the changes that were made while the loop was busy or waking up; in a
// burst, the loop also waits until 3 microseconds have passed since the last message, if nothing else waits. A thread's
// calls keep their order: if anything was posted after the task, the next change posts a task of its own.

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/table/client/client.hpp"
#include "transport/loop/loop.hpp"

namespace mv::api {

/// Any thread.
class SmallChanges {
 public:
  explicit SmallChanges(transport::Loop& loop) : loop_(loop) {}

  /// `reserved`: bytes of Client::in_flight(), which the change takes over. If it throws std::bad_alloc, it has taken nothing.
  void add(table::Client& client, const table::TableViewRef& table, const table::SmallForm& form, std::span<const std::byte> change, uint64_t reserved);

 private:
  struct Batch {
    table::TableViewRef table;
    table::SmallForm form;
    std::vector<std::byte> changes;
    uint64_t reserved = 0;
  };
  bool may_grow(const std::shared_ptr<Batch>& batch);
  void begin(table::Client& client, const std::shared_ptr<Batch>& batch);

  transport::Loop& loop_;
  base::Nanos sent_at_{0};  ///< when the last message was queued; on the loop
  std::mutex mutex_;
  // Under mutex_.
  std::shared_ptr<Batch> open_;  ///< its task has not run yet
  uint64_t posts_ = 0;           ///< the loop's, right after its task
};

}  // namespace mv::api
