#include "node/call.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace mv::node {

namespace {

/// Without memory for the text the code alone.
void assign(base::Status& to, const base::Status& from) noexcept {
  try {
    to = from;
  } catch (const std::bad_alloc&) {
    to = base::Status(from.code(), "");
  }
}

}  // namespace

void Call::complete(const base::Status& status) noexcept {
  const auto self = shared_from_this();  // a waiter may let go as soon as done_ is set
  assign(status_, status);
  done_.store(true, std::memory_order_release);
  finished_.finished(self);
  if (group_ != nullptr) group_->part_over(this, status);
}

void Call::add_part(const Call* part) {
  std::lock_guard lock(mutex_);
  ++open_;
  parts_.insert(part);
}

void Call::part_over(const Call* part, const base::Status& status) noexcept {
  std::unique_lock lock(mutex_);
  parts_.erase(part);
  if (!status.ok() && first_error_.ok()) assign(first_error_, status);
  let_go(std::move(lock));
}

void Call::close_group(std::function<base::Status()> finish) {
  std::unique_lock lock(mutex_);
  finish_ = std::move(finish);
  let_go(std::move(lock));
}

/// Whoever takes the last hold off a group ends it.
void Call::let_go(std::unique_lock<std::mutex> lock) noexcept {
  if (--open_ > 0) return;
  const auto finish = std::exchange(finish_, nullptr);  // it keeps what the parts wrote into
  base::Status status = std::move(first_error_);
  lock.unlock();
  try {
    if (status.ok() && finish) status = finish();
  } catch (const std::bad_alloc&) {
    status = base::Status(MV_ENOMEM, "out of memory");
  }
  complete(status);
}

std::vector<const Call*> Call::open_parts() const {
  std::lock_guard lock(mutex_);
  return {parts_.begin(), parts_.end()};
}

FinishedList::FinishedList(std::function<void()> wake) : wake_(std::move(wake)), event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

FinishedList::~FinishedList() {
  while (first_ != nullptr) first_ = std::move(first_->next_finished_);  // one by one, not one inside the other
  close_descriptor();
}

void FinishedList::close_descriptor() noexcept {
  if (event_fd_ >= 0) close(event_fd_);
  event_fd_ = -1;
}

void FinishedList::finished(const std::shared_ptr<Call>& call) noexcept {
  if (call->announces_) list(call);
  wake_();
}

void FinishedList::list(const std::shared_ptr<Call>& call) noexcept {
  std::lock_guard lock(mutex_);
  if (call->forgotten_) return;  // its waiter was quicker
  (last_ == nullptr ? first_ : last_->next_finished_) = call;
  call->before_finished_ = last_;
  call->listed_ = true;
  last_ = call.get();
  count_.fetch_add(1, std::memory_order_release);
  show();
}

std::vector<int64_t> FinishedList::take(size_t most) {
  std::vector<int64_t> taken;
  std::lock_guard lock(mutex_);
  taken.reserve(std::min(most, count_.load(std::memory_order_relaxed)));
  while (first_ != nullptr && taken.size() < most) {
    taken.push_back(first_->tag_);
    unlink(*first_);
  }
  show();
  return taken;
}

void FinishedList::remove(Call& call) noexcept {
  std::lock_guard lock(mutex_);
  call.forgotten_ = true;
  if (!call.listed_) return;
  const std::shared_ptr<Call> kept = unlink(call);
  show();
}

/// Under the lock. Gives the list's hold on the call.
std::shared_ptr<Call> FinishedList::unlink(Call& call) noexcept {
  auto& link = call.before_finished_ == nullptr ? first_ : call.before_finished_->next_finished_;
  std::shared_ptr<Call> self = std::exchange(link, std::move(call.next_finished_));
  (link == nullptr ? last_ : link->before_finished_) = call.before_finished_;
  call.listed_ = false;
  count_.fetch_sub(1, std::memory_order_release);
  return self;
}

void FinishedList::also_readable(bool is_so) noexcept {
  std::lock_guard lock(mutex_);
  also_readable_ = is_so;
  show();
}

/// Under the lock: makes the descriptor readable, or not.
void FinishedList::show() noexcept {
  const bool readable = also_readable_ || first_ != nullptr;
  if (readable == std::exchange(is_readable_, readable)) return;
  uint64_t number = 1;
  [[maybe_unused]] const ssize_t done = readable ? write(event_fd_, &number, sizeof number) : read(event_fd_, &number, sizeof number);
}

}  // namespace mv::node
