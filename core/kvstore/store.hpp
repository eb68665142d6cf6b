#pragma once
// A key-value store: keys that are tables, values that are tensors, of one device or several.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kvstore/compression.hpp"
#include "kvstore/type.hpp"
#include "node/node.hpp"
#include "tensor/tensor.hpp"

namespace mv::kvstore {

using tensor::Tensor;

/// Keys of one call, as text.
struct Keys {
  bool are_numbers = false;
  std::vector<std::string> names;
};
/// What belongs to each key of a call, one tensor a device.
using Values = std::vector<std::span<const Tensor>>;

/// How long a call waits, and where it stands among those that wait with it.
struct How {
  base::Nanos timeout{0};
  int64_t priority = 0;
};

/// Methods from any thread; calls of one thread on a key take effect in their order. What is wrong with any key of a call is found before
/// anything is done for another.
class Store {
 public:
  /// @param prefix  of its tables' names, the same on all workers
  Store(node::Node& node, Type type, std::string prefix) : node_(node), type_(std::move(type)), prefix_(std::move(prefix)) {}

  const Type& type() const { return type_; }
  int64_t rank() const { return node_.identity().worker_id; }
  int64_t num_workers() const { return node_.identity().num_workers; }

  base::Status init(const Keys& keys, const Values& values);
  base::Status push(const Keys& keys, const Values& values, const How& how);
  base::Status pull(const Keys& keys, const Values& values, const How& how);
  base::Status set_optimizer(const table::UpdaterSpec& optimizer);
  /// MV_ESTATE once a key was pushed, but for none. What is left of a codec that is switched off goes with each key's next push.
  base::Status set_compression(Compression compression);
  /// What a key's codec has left out so far, for each sender, to be saved with the optimizer's states: see Residuals.
  base::Result<std::vector<std::vector<std::byte>>> residuals(const std::string& key);
  base::Status set_residuals(const std::string& key, std::vector<std::vector<std::byte>> senders);
  base::Status barrier(base::Nanos timeout);
  base::Status leave();

 private:
  /// A key of this store.
  struct Entry {
    std::string name;
    node::TableRef table;
    mv_dtype dtype = MV_F32;
    tensor::Shape shape;
    std::atomic<bool> updates{false};  ///< an optimizer was seen at work
    std::atomic<bool> pushed{false};
    std::mutex merging;                ///< what follows
    std::vector<std::byte> merged;     ///< room for the sum over devices
    Residuals residuals;
  };
  using EntryRef = std::shared_ptr<Entry>;

  base::Status check_keys(const Keys& keys);
  base::Result<EntryRef> make(const std::string& key, const Tensor& value);
  base::Result<std::vector<EntryRef>> find(const Keys& keys, const Values& values);
  base::Status need_optimizer(Entry& entry);
  base::Status push_one(Entry& entry, std::span<const Tensor> values, const node::CallOptions& options);
  base::Status give(Entry& entry, const std::byte* merged, const node::CallOptions& options);
  Compression compression_of(const Entry& entry);
  base::Status push_encoded(Entry& entry, std::span<const Tensor> values, const codec::CodecRef& codec, const node::CallOptions& options);
  base::Status push_from_devices(Entry& entry, std::span<const Tensor> values, const codec::Codec& codec, const node::CallOptions& options);
  static bool has_rest(Entry& entry);
  base::Status push_with_rest(Entry& entry, std::span<const Tensor> values, const node::CallOptions& options);

  node::Node& node_;
  const Type type_;
  const std::string prefix_;
  std::mutex mutex_;  ///< what follows
  std::map<std::string, EntryRef> entries_;
  bool any_key_ = false, keys_are_numbers_ = false;
  std::atomic<bool> left_{false};
  table::UpdaterSpec optimizer_{"assign", {}};
  Compression compression_;
};

}  // namespace mv::kvstore
