#pragma once
// A key-value store: keys that are tables, values that are tensors, of one device or several.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

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
  base::Status push(const Keys& keys, const Values& values, base::Nanos timeout);
  base::Status pull(const Keys& keys, const Values& values, base::Nanos timeout);
  base::Status set_optimizer(const table::UpdaterSpec& optimizer);
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
    std::mutex merging;
    std::vector<std::byte> merged;     ///< room for the sum over devices
  };
  using EntryRef = std::shared_ptr<Entry>;

  base::Status check_keys(const Keys& keys);
  base::Result<EntryRef> make(const std::string& key, const Tensor& value);
  base::Result<std::vector<EntryRef>> find(const Keys& keys, const Values& values);
  base::Status need_optimizer(Entry& entry);
  base::Status push_one(Entry& entry, std::span<const Tensor> values, base::Nanos timeout);

  node::Node& node_;
  const Type type_;
  const std::string prefix_;
  std::mutex mutex_;  ///< what follows
  std::map<std::string, EntryRef> entries_;
  bool any_key_ = false, keys_are_numbers_ = false;
  std::atomic<bool> left_{false};
  table::UpdaterSpec optimizer_{"assign", {}};
};

}  // namespace mv::kvstore
