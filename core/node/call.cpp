#include "node/call.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace mv::node {

void Call::complete(const base::Status& status) {
  const auto self = shared_from_this();  // a waiter may let go as soon as done_ is set
  status_ = status;
  done_.store(true, std::memory_order_release);
  if (announces_) finished_.push(tag_);
  if (group_ != nullptr) group_->part_over(this, status);
}

void Call::add_part(const Call* part) {
  std::lock_guard lock(mutex_);
  ++open_;
  parts_.insert(part);
}

void Call::part_over(const Call* part, const base::Status& status) {
  std::unique_lock lock(mutex_);
  parts_.erase(part);
  if (!status.ok() && first_error_.ok()) first_error_ = status;
  let_go(std::move(lock));
}

void Call::close_group(std::function<base::Status()> finish) {
  std::unique_lock lock(mutex_);
  finish_ = std::move(finish);
  let_go(std::move(lock));
}

/// Whoever takes the last hold off a group ends it.
void Call::let_go(std::unique_lock<std::mutex> lock) {
  if (--open_ > 0) return;
  const auto finish = std::exchange(finish_, nullptr);  // it keeps what the parts wrote into
  base::Status status = first_error_;
  lock.unlock();
  if (status.ok() && finish) status = finish();
  complete(status);
}

std::vector<const Call*> Call::open_parts() const {
  std::lock_guard lock(mutex_);
  return {parts_.begin(), parts_.end()};
}

FinishedList::FinishedList() : event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

FinishedList::~FinishedList() { close_descriptor(); }

void FinishedList::close_descriptor() noexcept {
  if (event_fd_ >= 0) close(event_fd_);
  event_fd_ = -1;
}

void FinishedList::push(int64_t tag) {
  std::lock_guard lock(mutex_);
  tags_.push_back(tag);
  show();
}

std::vector<int64_t> FinishedList::take(size_t most) {
  std::lock_guard lock(mutex_);
  const size_t count = std::min(most, tags_.size());
  std::vector<int64_t> taken(tags_.begin(), tags_.begin() + static_cast<ptrdiff_t>(count));
  tags_.erase(tags_.begin(), tags_.begin() + static_cast<ptrdiff_t>(count));
  show();
  return taken;
}

void FinishedList::also_readable(bool is_so) {
  std::lock_guard lock(mutex_);
  also_readable_ = is_so;
  show();
}

/// Under the lock: what count and descriptor tell the others.
void FinishedList::show() {
  count_.store(tags_.size(), std::memory_order_release);
  const bool readable = also_readable_ || !tags_.empty();
  if (readable == std::exchange(is_readable_, readable)) return;
  uint64_t number = 1;
  [[maybe_unused]] const ssize_t done = readable ? write(event_fd_, &number, sizeof number) : read(event_fd_, &number, sizeof number);
}

}  // namespace mv::node
