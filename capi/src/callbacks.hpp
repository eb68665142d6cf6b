#pragma once
// User callbacks, which run on the thread that set them. Each such thread has a list of the stores that have one.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/kvstore/updates.hpp"
#include "state.hpp"

namespace mv::capi {

/// The controller of a node's server, and the thread that set it.
class Control {
 public:
  using Controller = std::function<base::Status(int64_t head, const std::string& body)>;

  /// @param controller empty: manual
  Control(const NodeRef& node, std::shared_ptr<kvstore::CallbackThread> thread, Controller controller)
      : node_(node), thread_(std::move(thread)), controller_(std::move(controller)) {}

  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control() {
    if (active_) thread_->inside(false);  // a command was begun manually and not ended
  }

  // ---- only on the thread that set it

  bool is_here() const { return thread_->is_here(); }
  bool is_manual() const { return !controller_; }
  /// Whether any command was queued; executes them unless that is done manually.
  bool run_due();
  /// The oldest command, the same one until done(); null if none is queued.
  const api::Command* next();
  bool done(const base::Status& outcome);

 private:
  const std::weak_ptr<NodeEntry> node_;  ///< the owner of this controller
  const std::shared_ptr<kvstore::CallbackThread> thread_;
  const Controller controller_;
  std::optional<api::Command> active_;
};

class Callbacks final : public kvstore::CallbackThread, public std::enable_shared_from_this<Callbacks> {
 public:
  explicit Callbacks(State& state) : state_(state) {}
  /// The callbacks of the calling thread, in this life of the library.
  static std::shared_ptr<Callbacks> of_this_thread(State& state);

  bool is_here() const override;
  bool has_ended() const override { return has_ended_.load(std::memory_order_acquire); }
  void due(int64_t more, bool manual) override;
  void inside(bool is_inside) override { inside_ += is_inside ? 1 : -1; }

  // ---- only on this thread

  void add(const std::shared_ptr<kvstore::Store>& store);
  void add(const std::shared_ptr<Control>& control);
  /// Runs all due callbacks; true if any were due, or are run manually.
  bool run();
  bool is_inside() const { return inside_.load() != 0; }
  /// Whether this thread has any callbacks set.
  bool has_any() const;

  // ---- any thread

  bool any_due() const { return any_to_run() || manual_.load(std::memory_order_acquire) > 0; }
  /// any_due() without callbacks that are run manually.
  bool any_to_run() const { return due_.load(std::memory_order_acquire) > 0; }
  void end() { has_ended_.store(true, std::memory_order_release); }
  bool is_of(const State& state) const { return &state == &state_; }

 private:
  State& state_;
  std::atomic<int64_t> due_{0}, manual_{0};
  std::atomic<int> inside_{0};
  std::atomic<bool> has_ended_{false};
  std::vector<std::weak_ptr<kvstore::Store>> stores_;
  std::vector<std::weak_ptr<Control>> controls_;
};

/// Makes the descriptors of all nodes readable while callbacks are due, and only then.
void show_due_callbacks(State& state);

}  // namespace mv::capi
