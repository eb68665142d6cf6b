#include "api/call/call.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.hpp"

namespace mv::api {

Call::~Call() {
  if (announces_) finished_.drop(*this);
  if (group_ != nullptr && !done()) group_->drop_part(this);
}

void Call::ended(const base::Status& status) noexcept {
  if (released_ != nullptr && !status.ok()) {
    try {
      released_(table_.get(), status);
    } catch (const std::bad_alloc&) {
      base::log_error("a call without a waiter has failed: {}", status.text());  // no memory to keep the error for the next call
    }
  }
  finished_.finished(*this, announces_ && released_ == nullptr);
  if (group_ != nullptr) group_->part_over(this, status);
}

void Call::release(std::function<void(table::TableView*, const base::Status&)> failed) {
  if (!done())
    released_ = std::move(failed);
  else if (!status().ok())
    failed(table_.get(), status());
}

void Call::add_part(Call* part) {
  std::lock_guard lock(mutex_);
  ++open_;
  parts_.insert(part);
}

/// Removes a part that never began because memory ran out.
void Call::drop_part(Call* part) noexcept {
  std::lock_guard lock(mutex_);
  parts_.erase(part);
}

void Call::part_over(Call* part, const base::Status& status) noexcept {
  std::unique_lock lock(mutex_);
  parts_.erase(part);
  if (!status.ok() && first_error_.ok()) first_error_.assign(status);
  let_go(std::move(lock));
}

void Call::close_group(std::function<base::Status()> finish) {
  std::unique_lock lock(mutex_);
  finish_ = std::move(finish);
  let_go(std::move(lock));
}

/// Drops one hold on the group. Dropping the last one ends the group.
void Call::let_go(std::unique_lock<std::mutex> lock) noexcept {
  if (--open_ > 0) return;
  const auto finish = std::exchange(finish_, nullptr);  // it owns the buffers that the parts wrote into
  base::Status status = std::move(first_error_);
  lock.unlock();
  try {
    if (status.ok() && finish) status = finish();
  } catch (const std::bad_alloc&) {
    status = base::Status(MV_ENOMEM, "out of memory");
  }
  complete(status);
}

bool Call::has_failed() const {
  std::lock_guard lock(mutex_);
  return !first_error_.ok();
}

std::vector<std::shared_ptr<Call>> Call::open_parts() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Call>> open;
  open.reserve(parts_.size());
  for (Call* part : parts_)
    if (auto held = std::static_pointer_cast<Call>(part->weak_from_this().lock())) open.push_back(std::move(held));  // else it is being destroyed
  return open;
}

FinishedList::FinishedList(std::function<void()> wake) : wake_(std::move(wake)), event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

FinishedList::~FinishedList() { close_descriptor(); }

void FinishedList::close_descriptor() noexcept {
  if (event_fd_ >= 0) close(event_fd_);
  event_fd_ = -1;
}

void FinishedList::finished(Call& call, bool is_listed) noexcept {
  if (is_listed) {
    std::lock_guard lock(mutex_);
    call.before_ = last_;
    (last_ != nullptr ? last_->behind_ : first_) = &call;
    last_ = &call;
    call.is_listed_ = true;
    ++size_;
    show();
  }
  wake_();
}

void FinishedList::drop(Call& call) noexcept {
  std::lock_guard lock(mutex_);
  if (!call.is_listed_) return;
  unlink(call);
  show();
}

/// Requires the lock.
void FinishedList::unlink(Call& call) noexcept {
  (call.before_ != nullptr ? call.before_->behind_ : first_) = call.behind_;
  (call.behind_ != nullptr ? call.behind_->before_ : last_) = call.before_;
  call.is_listed_ = false;
  --size_;
}

std::vector<int64_t> FinishedList::take(size_t most) {
  std::lock_guard lock(mutex_);
  std::vector<int64_t> taken;
  taken.reserve(std::min(most, size_));
  while (taken.size() < most && first_ != nullptr) {
    taken.push_back(first_->tag_);
    unlink(*first_);
  }
  show();
  return taken;
}

void FinishedList::also_readable(bool is_so) noexcept {
  std::lock_guard lock(mutex_);
  also_readable_ = is_so;
  show();
}

/// Publishes the count and updates the event descriptor. Requires the lock.
void FinishedList::show() noexcept {
  count_.store(size_, std::memory_order_release);
  const bool readable = also_readable_ || size_ > 0;
  if (readable == std::exchange(is_readable_, readable)) return;
  uint64_t number = 1;
  [[maybe_unused]] const ssize_t done = readable ? write(event_fd_, &number, sizeof number) : read(event_fd_, &number, sizeof number);
}

}  // namespace mv::api
