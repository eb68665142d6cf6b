#pragma once
// Updates: updater callbacks. Values pushed to a store of this process go through a function of the user, which runs
// only on the thread that set it. Values that other threads push wait for that thread.

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/kvstore/entry.hpp"

namespace mv::kvstore {

/// A thread that callbacks belong to, as the layer above knows it. Any thread may call its methods.
class CallbackThread {
 public:
  virtual ~CallbackThread() = default;
  virtual bool is_here() const = 0;
  virtual bool has_ended() const = 0;
  /// The change in the number of callbacks that wait for it. manual: the library can't make it run them.
  virtual void due(int64_t more, bool manual) = 0;
  /// Whether it is inside a callback from now on.
  virtual void inside(bool is_inside) = 0;
};

/// Any thread. No lock is held while a callback runs.
class Updates {
 public:
  /// updater(key, merged, stored): writes the new value to `stored`. For a row-sparse key it may replace that tensor by
  /// one that holds other rows.
  using Updater = std::function<base::Status(const std::string& key, const Tensor& merged, Tensor& stored)>;
  /// An update, for a caller that runs it manually.
  struct Given {
    std::string key;
    Tensor merged, stored;
  };
  enum class Wait { kForOutcome, kNo };

  Updates(api::Node& node, tensor::Heap& heap) : node_(node), heap_(heap) {}
  ~Updates();
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;

  /// Without a function, the owner takes updates one by one, with next() and done().
  base::Status set(std::shared_ptr<CallbackThread> thread, Updater updater);
  /// Pushes replace values again. MV_EPENDING while updates wait for another thread.
  base::Status clear();
  bool is_on() const { return is_on_.load(std::memory_order_acquire); }
  bool is_manual_here() const;

  /// A push in progress: the outcomes of its keys' updates, if the caller waits for them.
  struct Pushing {
    bool is_own = false;  ///< by the updater's own thread
    bool runs = false;    ///< this thread runs its updates and those that waited before them
    std::list<base::Status> outcomes;
  };
  /// MV_EREENTRANT, MV_ESTATE, MV_EPENDING; the error of an earlier update of these keys;
  /// MV_ETIMEOUT if too many bytes wait.
  base::Status begin(const Entries& entries, Wait wait, base::Nanos timeout, Pushing* pushing);
  /// Adds an update of one key by its sum, which has its own memory.
  base::Status add(Pushing& pushing, EntryRef entry, Tensor merged);
  /// Runs the updates if they belong on this thread, and returns the first error, unless the caller does not wait.
  base::Status finish(Pushing& pushing);
  /// Returns when earlier pushes of these keys are in their values: runs them here, or waits for
  /// the thread that runs them.
  base::Status settle(const Entries& entries, base::Nanos timeout);
  /// Whether any update waited for the calling thread; runs them unless they are run manually.
  bool run_due();
  /// MV_EREENTRANT inside a callback of this store.
  base::Status check_outside() const;

  /// The oldest update, the same one until done(); nullopt if none waits.
  base::Result<std::optional<Given>> next();
  /// Ends the update from next(). take_back(stored) replaces the tensor from next() by the new value.
  base::Status done(const base::Status& outcome, const std::function<void(Tensor& stored)>& take_back);

 private:
  struct Update {
    EntryRef entry;
    Tensor merged;
    base::Status* outcome = nullptr;  ///< of a caller that waits, on the updater's own thread
    bool is_own = false;              ///< pushed by the updater's own thread
  };
  struct Active {
    Update update;
    Tensor stored;
  };

  base::Status make_room(uint64_t bytes, base::Nanos timeout);
  bool begin_next(base::Status* failed);
  base::Status store(const Active& active);
  void end(const base::Status& outcome, bool is_manual);
  void run_all();
  base::Status wait_for_others(const Entries& entries, base::Nanos timeout);
  base::Status ended() const;
  base::Status take_untold(const Entries& entries) const;

  api::Node& node_;
  tensor::Heap& heap_;
  std::atomic<bool> is_on_{false}, was_on_{false};  ///< now; ever
  std::atomic<uint64_t> waiting_bytes_{0};
  mutable std::mutex mutex_;  ///< guards the members below
  std::shared_ptr<CallbackThread> thread_;
  Updater updater_;  ///< empty: manual
  std::deque<Update> waiting_;
  std::optional<Active> active_;
};

}  // namespace mv::kvstore
