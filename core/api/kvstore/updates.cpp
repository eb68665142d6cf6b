#include "api/kvstore/updates.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "tensor/sparse.hpp"

namespace mv::kvstore {

namespace {

/// Bytes that may wait for an updater's thread before pushes block; as inflight_bytes for servers.
constexpr uint64_t kMostWaiting = uint64_t{256} << 20;

base::Status is_inside() {
  return base::Status(MV_EREENTRANT, "an update of this store is in progress on this thread: the call would wait for it");
}

bool any_waits(const Entries& entries) {
  return std::ranges::any_of(entries, [](const EntryRef& entry) { return entry->updated.load() < entry->queued.load(); });
}

}  // namespace

/// The error of an earlier update of one of these keys that no caller waited for.
base::Status Updates::take_untold(const Entries& entries) const {
  if (!was_on_.load(std::memory_order_acquire)) return {};
  for (const EntryRef& entry : entries) {
    std::lock_guard lock(entry->telling);
    if (entry->untold.ok()) continue;
    const base::Status untold = std::exchange(entry->untold, {});
    return base::error(untold.code(), "an earlier update failed: {}", untold.text());
  }
  return {};
}

Updates::~Updates() {
  if (active_) thread_->inside(false);  // begun manually and never ended
  if (waiting_.empty()) return;
  base::log_warn("a key-value store was freed while {} updates waited for the thread that set its updater: they are dropped",
                 waiting_.size());
  thread_->due(-static_cast<int64_t>(waiting_.size()), !updater_);
}

base::Status Updates::ended() const {
  return base::Status(MV_ESTATE, "the thread that set the updater has ended: set it again from the thread that is to run it");
}

base::Status Updates::check_outside() const {
  std::lock_guard lock(mutex_);
  return active_ && thread_->is_here() ? is_inside() : base::Status();
}

bool Updates::is_manual_here() const {
  std::lock_guard lock(mutex_);
  return thread_ != nullptr && !updater_ && thread_->is_here();
}

base::Status Updates::set(std::shared_ptr<CallbackThread> thread, Updater updater) {
  if (const base::Status wrong = check_outside(); !wrong.ok()) return wrong;
  std::lock_guard lock(mutex_);
  if (active_) return base::Status(MV_EPENDING, "another thread is inside the store's updater");
  if (thread_ != nullptr && !thread_->is_here() && !thread_->has_ended() && !waiting_.empty())
    return base::error(MV_EPENDING, "{} updates wait for the thread that set the updater: that thread must call mv_poll() first", waiting_.size());
  // Waiting updates go through the new updater.
  const auto waiting = static_cast<int64_t>(waiting_.size());
  if (thread_ != nullptr) thread_->due(-waiting, !updater_);
  thread->due(waiting, !updater);
  thread_ = std::move(thread);
  updater_ = std::move(updater);
  was_on_.store(true, std::memory_order_release);
  is_on_.store(true, std::memory_order_release);
  return {};
}

base::Status Updates::clear() {
  if (!is_on()) return {};
  if (const base::Status wrong = check_outside(); !wrong.ok()) return wrong;
  run_due();
  std::lock_guard lock(mutex_);
  if (active_ || !waiting_.empty())
    return base::error(MV_EPENDING, "{} updates wait for the thread that set the updater", waiting_.size() + (active_ ? 1 : 0));
  is_on_.store(false, std::memory_order_release);
  thread_ = nullptr;
  updater_ = nullptr;
  return {};
}

/// Blocks while too many bytes wait for the updater's thread, which is another one.
base::Status Updates::make_room(uint64_t bytes, base::Nanos timeout) {
  const auto fits = [this, bytes] {
    const uint64_t now = waiting_bytes_.load();
    return now == 0 || now + bytes <= kMostWaiting;
  };
  const base::Status waited = fits() ? base::Status() : node_.wait_until(fits, timeout);
  if (waited.ok()) return waited;
  return base::error(waited.code(), "{} bytes wait for the thread that set the updater, which must call mv_poll(): {}",
                     waiting_bytes_.load(), waited.text());
}

base::Status Updates::begin(const Entries& entries, Wait wait, base::Nanos timeout, Pushing* pushing) {
  if (const base::Status untold = take_untold(entries); !untold.ok()) return untold;
  uint64_t bytes = 0;
  for (const EntryRef& entry : entries) bytes += entry->shape.count() * tensor::dtype_bytes(entry->dtype);
  {
    std::lock_guard lock(mutex_);
    if (thread_ == nullptr) return base::Status(MV_ESTATE, "the updater was removed during the call");
    pushing->is_own = thread_->is_here();
    if (!pushing->is_own && thread_->has_ended()) return ended();
    if (pushing->is_own && active_ && wait == Wait::kForOutcome) return is_inside();
    const bool is_full = waiting_bytes_.load() > 0 && waiting_bytes_.load() + bytes > kMostWaiting;
    if (pushing->is_own && is_full && !updater_) return base::Status(MV_EPENDING, "too many updates wait for this thread: call kv_next_update()");
    pushing->runs = pushing->is_own && updater_ && !active_ && (wait == Wait::kForOutcome || is_full);
  }
  return pushing->is_own ? base::Status() : make_room(bytes, timeout);
}

base::Status Updates::add(Pushing& pushing, EntryRef entry, Tensor merged) {
  Update update{std::move(entry), std::move(merged), nullptr, pushing.is_own};
  std::lock_guard lock(mutex_);
  if (thread_ == nullptr) return base::Status(MV_ESTATE, "the updater was removed during the call");
  if (pushing.runs) update.outcome = &pushing.outcomes.emplace_back();
  update.entry->queued.fetch_add(1);
  waiting_bytes_.fetch_add(update.merged.stored_bytes());
  waiting_.push_back(std::move(update));
  thread_->due(1, !updater_);
  return {};
}

base::Status Updates::finish(Pushing& pushing) {
  if (!pushing.runs) return {};
  run_all();
  const auto failed = std::ranges::find_if(pushing.outcomes, [](const base::Status& outcome) { return !outcome.ok(); });
  return failed != pushing.outcomes.end() ? *failed : base::Status();
}

/// Takes the oldest update; false if none waits. `failed` is set if its stored value could not be read.
bool Updates::begin_next(base::Status* failed) {
  std::lock_guard lock(mutex_);
  if (waiting_.empty()) return false;
  active_.emplace(Active{});  // clang 14 does not take Active for default-constructible
  active_->update = std::move(waiting_.front());
  waiting_.pop_front();
  thread_->inside(true);
  const Entry& entry = *active_->update.entry;
  auto stored = tensor::make_dense(heap_, entry.dtype, entry.shape, tensor::Heap::Content::kAnything);
  if (stored.ok()) *failed = entry.table->get({}, {stored.value().data, stored.value().shape.count(), entry.dtype}, {}).status;
  if (stored.ok() && failed->ok() && entry.row_sparse) stored = tensor::to_sparse("updater", heap_, stored.value());
  if (stored.ok() && entry.device != nullptr) {  // the callback computes on the device
    stored = tensor::move_to(*entry.device, stored.value());
    auto merged = tensor::move_to(*entry.device, active_->update.merged);
    if (merged.ok()) active_->update.merged = std::move(merged).value();
    if (!merged.ok()) stored = merged.status();
  }
  if (stored.ok())
    active_->stored = std::move(stored).value();
  else
    *failed = stored.status();
  return true;
}

/// Stores what the callback has made of the value.
base::Status Updates::store(const Active& active) {
  const Entry& entry = *active.update.entry;
  const auto here = tensor::on_host(active.stored);
  if (!here.ok()) return here.status();
  const Tensor& stored = here.value();
  const auto dense = stored.is_row_sparse() ? tensor::to_dense("updater", heap_, stored) : base::Result<Tensor>(stored);
  if (!dense.ok()) return dense.status();
  return entry.table->set({}, {dense.value().data, dense.value().shape.count(), entry.dtype}, {}).status;
}

/// Stores the value, or keeps its error for the waiting push or for a later call.
void Updates::end(const base::Status& outcome, bool is_manual) {
  const Entry& about = *active_->update.entry;
  base::Status status = outcome.ok() ? store(*active_) : outcome;
  if (!status.ok()) status = base::error(status.code(), "key \"{}\": {}", about.name, status.text());
  std::lock_guard lock(mutex_);
  const Update update = std::move(active_->update);
  active_.reset();
  if (update.outcome != nullptr) {
    *update.outcome = status;
  } else if (!status.ok() && !(is_manual && update.is_own)) {  // a thread that runs updates manually knows the outcome of its own
    std::lock_guard telling(update.entry->telling);
    if (update.entry->untold.ok()) update.entry->untold = status;
  }
  waiting_bytes_.fetch_sub(update.merged.stored_bytes());
  update.entry->updated.fetch_add(1);
  thread_->inside(false);
  thread_->due(-1, !updater_);
}

/// On the updater's thread, outside any callback.
void Updates::run_all() {
  base::Status failed;
  while (begin_next(&failed)) {
    Active& active = *active_;  // changed by this thread only
    end(failed.ok() ? updater_(active.update.entry->name, active.update.merged, active.stored) : failed, false);
    failed = {};
    node_.wake();
  }
}

bool Updates::run_due() {
  {
    std::lock_guard lock(mutex_);
    if (thread_ == nullptr || active_ || waiting_.empty() || !thread_->is_here()) return false;
    if (!updater_) return true;
  }
  run_all();
  return true;
}

base::Status Updates::settle(const Entries& entries, base::Nanos timeout) {
  if (is_on()) {
    std::unique_lock lock(mutex_);
    const bool is_here = thread_ != nullptr && thread_->is_here();
    if (is_here && active_) {
      if (any_waits(entries)) return is_inside();
    } else if (is_here && !updater_) {
      if (any_waits(entries)) return base::Status(MV_EPENDING, "updates of the keys wait for this thread: call kv_next_update(), then this call again");
    } else if (is_here) {
      lock.unlock();
      run_all();
    } else {
      lock.unlock();
      if (const base::Status failed = wait_for_others(entries, timeout); !failed.ok()) return failed;
    }
  }
  return take_untold(entries);
}

base::Status Updates::wait_for_others(const Entries& entries, base::Nanos timeout) {
  std::shared_ptr<CallbackThread> thread;
  {
    std::lock_guard lock(mutex_);
    thread = thread_;
  }
  for (const EntryRef& entry : entries) {
    const uint64_t wanted = entry->queued.load();
    const auto is_there = [&] { return entry->updated.load() >= wanted; };
    if (is_there()) continue;
    const base::Status waited = node_.wait_until([&] { return is_there() || (thread != nullptr && thread->has_ended()); }, timeout);
    if (waited.ok() && is_there()) continue;
    if (waited.ok()) return base::error(MV_ESTATE, "key \"{}\": {}", entry->name, ended().text());
    return base::error(waited.code(), "key \"{}\": {} updates wait for the thread that set the updater: it must call mv_poll() or any function of the store: {}",
                       entry->name, wanted - entry->updated.load(), waited.text());
  }
  return {};
}

base::Result<std::optional<Updates::Given>> Updates::next() {
  {
    std::lock_guard lock(mutex_);
    if (thread_ == nullptr || updater_) return base::Status(MV_ESTATE, "the store's updates are not run manually: set KV_UPDATER_MANUAL");
    if (!thread_->is_here()) return base::Status(MV_ESTATE, "another thread set the updater: run updates on that thread");
  }
  if (!active_) {
    base::Status failed;
    if (!begin_next(&failed)) return std::optional<Given>();
    if (!failed.ok()) {
      end(failed, true);
      return failed;
    }
  }
  return std::optional<Given>({active_->update.entry->name, active_->update.merged, active_->stored});
}

base::Status Updates::done(const base::Status& outcome, const std::function<void(Tensor& stored)>& take_back) {
  {
    std::lock_guard lock(mutex_);
    if (thread_ == nullptr || updater_ || !active_ || !thread_->is_here())
      return base::Status(MV_ESTATE, "this thread is running no update: call kv_next_update() first");
  }
  take_back(active_->stored);
  end(outcome, true);
  node_.wake();
  return {};
}

}  // namespace mv::kvstore
