#pragma once
// Store: a key-value store. Its keys are tables, its values are tensors of one or several devices.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/kvstore/devices.hpp"
#include "api/kvstore/entry.hpp"
#include "api/kvstore/key_parameters.hpp"
#include "api/kvstore/pull.hpp"
#include "api/kvstore/type.hpp"
#include "api/kvstore/updates.hpp"
#include "base/names.hpp"

namespace mv::kvstore {

/// Keys of one call, as text.
struct Keys {
  bool are_numbers = false;
  std::vector<std::string> names;
};

/// How long a call waits, and its priority among waiting calls.
struct How {
  base::Nanos timeout{0};
  int64_t priority = 0;
  Updates::Wait wait = Updates::Wait::kForOutcome;  ///< pushes to a store with an updater callback
};

/// What a dense pull does with row-sparse tensors: it ignores them, or fills them with all rows.
enum class Sparse { kIgnored, kFilled };

/// Any thread; calls of one thread on a key take effect in their order. An error with any key of a call is found before
/// another key changes. A call that ends with MV_EINTR must be repeated: it continues, and does nothing twice.
class Store {
 public:
  /// @param prefix  of its tables' names, the same on all workers
  Store(api::Node& node, tensor::Heap& heap, Type type, std::string prefix)
      : node_(node), heap_(heap), type_(std::move(type)), prefix_(std::move(prefix)), updates_(node, heap) {
    if (type_.dist && node.identity().num_worker_places > 1) channel_ = node.open_channel(prefix_);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  const Type& type() const { return type_; }
  int64_t rank() const { return node_.identity().worker_id; }
  int64_t num_workers() const { return node_.identity().num_workers; }

  /// Sets whether new keys refuse NaN and infinity.
  void reject_nonfinite(bool on) { rejects_nonfinite_ = on; }
  /// Values may be on devices.
  base::Status init(const Keys& keys, const Values& values);
  base::Status push(const Keys& keys, const Values& values, const How& how);
  api::Started pull(const Keys& keys, const Outs& outs, Sparse sparse, const api::CallOptions& options);
  /// @param ids  for each key one tensor of row ids, or one for each of its outs
  api::Started row_sparse_pull(const Keys& keys, const Outs& outs, const Values& ids, const api::CallOptions& options);
  base::Status set_optimizer(const shard::UpdaterSpec& optimizer);
  /// MV_ESTATE once a key was pushed, unless this switches compression off. The residuals then go
  /// with each key's next push.
  base::Status set_compression(Compression compression);
  base::Status barrier(base::Nanos timeout);
  base::Status leave();

  /// Parameters of single keys, which override those of the current and every later optimizer; empty text clears them.
  base::Status set_key_parameters(const Keys& keys, std::string_view text);
  /// Saves all keys' states from all servers to a file, with or without the optimizer, and loads them into a store with
  /// the same keys. Residuals are gathered from all workers that are in barrier(), and returned to them there.
  base::Status save_states(const std::string& path, bool with_optimizer);
  base::Status load_states(const std::string& path);

  /// For stores of this process only.
  base::Status set_updater(std::shared_ptr<CallbackThread> thread, Updates::Updater updater);
  base::Status remove_updater();
  Updates& updates() { return updates_; }

 private:
  base::Status check_keys(const Keys& keys);
  base::Status make(const Keys& keys, const Values& values, const Values& given, Entries& entries);
  base::Result<EntryRef> prepare(const std::string& key, const Tensor& value, const Tensor& given);
  base::Status set_first_optimizers(const Entries& entries);
  base::Status set_optimizers(const Entries& entries);
  base::Status naming_key(const base::Status& status) const;
  base::Result<EntriesRef> find(const Keys& keys);
  base::Status check_kind(const Keys& keys) const;
  base::Status need_optimizer(Entry& entry);
  base::Result<shard::UpdaterSpec> optimizer_of(const std::string& key);
  Entries all_entries();
  void use_optimizer(const shard::UpdaterSpec& optimizer);
  base::Status check_optimizer(const Entry& entry, const shard::UpdaterSpec& optimizer) const;
  /// How a push reaches its key: through the table, or through the updater callback.
  struct PushPath {
    api::CallOptions options;
    Updates::Pushing* updater = nullptr;
    codec::CodecRef codec;
  };
  /// What becomes of the values of a key that are on devices.
  enum class Course {
    kCopied,   ///< all values are copied to the host
    kEncoded,  ///< the codec encodes them where they are
    kMerged,   ///< likewise, and they are decoded and summed on the key's device, which adds the sum
    kAdded,    ///< the key's device adds them
  };
  static bool is_whole(Course course) { return course == Course::kAdded || course == Course::kMerged; }
  Course course_of(Entry& entry, std::span<const Tensor> values, const PushPath& path) const;
  bool shares_state();
  static bool are_in_order(const Entries& entries, const Values& values, const std::vector<Course>& courses);
  base::Status push_in_order(const Keys& keys, const Values& values, const How& how);
  base::Status push_checked(const Keys& keys, const Entries& entries, PlacedValues& placed, const std::vector<Course>& courses, PushPath& path);
  base::Status push_on_devices(const Entries& entries, const Values& values, const std::vector<Course>& courses, const codec::CodecRef& codec);
  bool goes_in_parts(Entry& entry, std::span<const Tensor> values, const PushPath& path) const;
  bool joins_many(Entry& entry, std::span<const Tensor> values, const PushPath& path) const;
  base::Status push_one(Entry& entry, std::span<const Tensor> values, const PushPath& path);
  base::Status push_rows(Entry& entry, std::span<const Tensor> values, const PushPath& path);
  base::Status give(Entry& entry, const std::byte* merged, const PushPath& path, std::optional<Tensor> room = {});
  base::Result<Tensor> room_for(const Entry& entry);
  Compression compression();
  base::Status push_encoded(Entry& entry, std::span<const Tensor> values, const codec::CodecRef& codec, const PushPath& path);
  base::Status push_from_devices(Entry& entry, std::span<const Tensor> values, const codec::Codec& codec, const PushPath& path);
  base::Result<std::map<std::string, Senders>> own_residuals();
  base::Result<std::map<std::string, Senders>> gather_residuals();
  base::Status hand_out_residuals(const std::map<std::string, Senders>& all);
  base::Status set_residuals(const std::string& key, Senders senders);
  base::Status take_residuals(const std::map<std::string, api::Channel::Bytes>& left);
  base::Status serve_channel();
  base::Status serving_barrier(api::CallOptions options);
  void accept_residuals(const Entry& entry);
  void give_residuals(bool on);
  static bool has_rest(Entry& entry);
  base::Status push_with_rest(Entry& entry, std::span<const Tensor> values, const PushPath& path);

  api::Node& node_;
  tensor::Heap& heap_;
  const Type type_;
  const std::string prefix_;
  std::atomic<bool> rejects_nonfinite_{false};
  std::mutex mutex_;  ///< guards the members below
  base::NameMap<EntryRef> entries_;  ///< by key; the entry owns the key's text
  // Of the last call: most calls have the same keys in the same order.
  EntriesRef recent_;
  std::vector<std::string> recent_names_;
  bool any_key_ = false, keys_are_numbers_ = false;
  std::atomic<bool> left_{false};
  std::atomic<bool> has_begun_{false};  ///< a push or pull was made
  shard::UpdaterSpec optimizer_{shard::kReplacing, {}};
  bool shares_state_ = false;  ///< the optimizer has a state that all keys change, in the order of their updates
  Compression compression_;
  std::map<std::string, KeyParameters> key_parameters_;
  Updates updates_;
  std::unique_ptr<api::Channel> channel_;  ///< between the workers of a dist store, or null; never changes
};

}  // namespace mv::kvstore
