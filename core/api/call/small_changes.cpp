#include "api/call/small_changes.hpp"

#include <sched.h>

#include <chrono>
#include <utility>

namespace mv::api {

namespace {
/// A server applies a message in one go, so this limits how long other requests wait.
constexpr size_t kMostBytes = 32 << 10;
/// The least time between two messages. A message costs both ends about 1 microsecond, whatever it contains: a loop that
/// waits for changes on a processor of its own would otherwise send each of them alone, and not keep up. A guess that was
/// good on one machine; more than 3 gained nothing.
constexpr std::chrono::microseconds kBetween(3);
}  // namespace

void SmallChanges::add(table::Client& client, const table::TableViewRef& table, const table::SmallForm& form, std::span<const std::byte> change, uint64_t reserved) {
  const std::lock_guard lock(mutex_);
  // Changes without bytes would not be counted in a message.
  const bool fits = open_ != nullptr && posts_ == loop_.posts() && open_->table == table && open_->form == form && !change.empty() &&
                    open_->changes.size() + change.size() <= kMostBytes;
  if (fits) {
    open_->changes.insert(open_->changes.end(), change.begin(), change.end());
    open_->reserved += reserved;
    return;
  }
  auto batch = std::make_shared<Batch>(Batch{table, form, {change.begin(), change.end()}, reserved});
  const table::OpenChange open(*table);
  posts_ = loop_.post([this, &client, batch] { begin(client, batch); });
  open.keep();
  open_ = std::move(batch);
}

/// Whether the next change may still join: none other has been made, and nothing else was posted.
bool SmallChanges::may_grow(const std::shared_ptr<Batch>& batch) {
  const std::lock_guard lock(mutex_);
  return open_ == batch && posts_ == loop_.posts();
}

/// On the loop.
void SmallChanges::begin(table::Client& client, const std::shared_ptr<Batch>& batch) {
  while (loop_.now() - sent_at_ < kBetween && may_grow(batch)) sched_yield();  // the caller may share this processor
  {
    const std::lock_guard lock(mutex_);
    if (open_ == batch) open_ = nullptr;
  }
  client.begin_small(batch->table, batch->form, base::Payload::kept(batch->changes, batch), batch->reserved);
  sent_at_ = loop_.now();
}

}  // namespace mv::api
