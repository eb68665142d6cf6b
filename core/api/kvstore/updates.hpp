#pragma once
// Updater callbacks: what is pushed to a store of this process goes through a function of the user's, which runs on the thread
// that set it and on no other. What others push waits until that thread comes by.

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

/// A thread that callbacks belong to, as the layer above knows it. Methods from any thread.
class CallbackThread {
 public:
  virtual ~CallbackThread() = default;
  virtual bool is_here() const = 0;
  virtual bool has_ended() const = 0;
  /// So many more callbacks wait for it, or fewer; by_hand: it can't be made to run them.
  virtual void due(int64_t more, bool by_hand) = 0;
  /// It is inside a callback from now on, or no longer.
  virtual void inside(bool is_inside) = 0;
};

/// Methods from any thread. No lock is held while a callback runs.
class Updates {
 public:
  /// updater(key, merged, stored): writes what is to be stored into `stored`; of a row-sparse key it may put another tensor there, which
  /// holds other rows.
  using Updater = std::function<base::Status(const std::string& key, const Tensor& merged, Tensor& stored)>;
  /// What an update is about, for those who run it by hand.
  struct Given {
    std::string key;
    Tensor merged, stored;
  };
  enum class Wait { kForOutcome, kNo };

  Updates(api::Node& node, tensor::Heap& heap) : node_(node), heap_(heap) {}
  ~Updates();
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;

  /// Without a function its owner takes updates one by one, with next() and done().
  base::Status set(std::shared_ptr<CallbackThread> thread, Updater updater);
  /// Pushes replace values again. MV_EPENDING while updates wait for another thread.
  base::Status clear();
  bool is_on() const { return is_on_.load(std::memory_order_acquire); }
  bool is_by_hand_here() const;

  /// A push under way: the outcomes of its keys' updates, if somebody waits for them.
  struct Pushing {
    bool is_own = false;  ///< by the updater's own thread
    bool runs = false;    ///< which runs it, and what has waited before it
    std::list<base::Status> outcomes;
  };
  /// MV_EREENTRANT, MV_ESTATE, MV_EPENDING; the error of an earlier update of these keys; MV_ETIMEOUT where too much waits already.
  base::Status begin(const Entries& entries, Wait wait, base::Nanos timeout, Pushing* pushing);
  /// One key's sum, in memory of its own, to be updated with.
  base::Status add(Pushing& pushing, EntryRef entry, Tensor merged);
  /// On the updater's own thread it runs them, and gives the first error, unless nobody waits.
  base::Status finish(Pushing& pushing);
  /// Returns when the earlier pushes of these keys are in their values: runs them here, or waits for the thread that has to.
  base::Status settle(const Entries& entries, base::Nanos timeout);
  /// Whether any update waited for the calling thread; it runs them unless that is done by hand.
  bool run_due();
  /// MV_EREENTRANT inside a callback of this store.
  base::Status check_outside() const;

  /// The oldest update, the same one until done(); nothing if none waits.
  base::Result<std::optional<Given>> next();
  /// take_back(stored): what next() gave becomes what has become of it.
  base::Status done(const base::Status& outcome, const std::function<void(Tensor& stored)>& take_back);

 private:
  struct Update {
    EntryRef entry;
    Tensor merged;
    base::Status* outcome = nullptr;  ///< of somebody who waits for it, on the updater's own thread
    bool is_own = false;              ///< pushed by the updater's own thread
  };
  struct Active {
    Update update;
    Tensor stored;
  };

  base::Status make_room(uint64_t bytes, base::Nanos timeout);
  bool begin_next(base::Status* failed);
  base::Status store(const Active& active);
  void end(const base::Status& outcome, bool is_by_hand);
  void run_all();
  base::Status wait_for_others(const Entries& entries, base::Nanos timeout);
  base::Status ended() const;
  base::Status take_untold(const Entries& entries) const;

  api::Node& node_;
  tensor::Heap& heap_;
  std::atomic<bool> is_on_{false}, was_on_{false};  ///< now; ever
  std::atomic<uint64_t> waiting_bytes_{0};
  mutable std::mutex mutex_;  ///< what follows
  std::shared_ptr<CallbackThread> thread_;
  Updater updater_;  ///< empty: by hand
  std::deque<Update> waiting_;
  std::optional<Active> active_;
};

}  // namespace mv::kvstore
