#pragma once
// Pull: the tables that one call reads, and the tensors that take their values.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/kvstore/encoded_pull.hpp"
#include "api/kvstore/entry.hpp"
#include "shard/on_device.hpp"
#include "tensor/heap.hpp"

namespace mv::kvstore {

/// Tensors to be filled, key by key, and how tensors that are to hold other rows are replaced.
struct Outs {
  std::vector<std::span<const Tensor>> by_key;
  /// Replaces the tensor at this place, counted over all keys' tensors. It keeps what it needs until the call ends.
  std::function<base::Status(size_t place, const Tensor& made)> replace;
};

/// Dense values and rows on their way into tensors. Lives until the call ends.
class Pull : public std::enable_shared_from_this<Pull> {
 public:
  /// @param entries  the keys that are pulled
  Pull(api::Node& node, tensor::Heap& heap, EntriesRef entries, std::function<base::Status(size_t, const Tensor&)> replace)
      : node_(node), heap_(heap), entries_(std::move(entries)), replace_(std::move(replace)) {}

  /// Reads a key's whole value into its tensors; `first` is the place of the first one. Row-sparse tensors are left
  /// unchanged, or take all rows that are not zero. Values on the host that need no message are read at once, those on devices by run().
  /// `codec`: encodes the values in transit; may be null.
  base::Status add(const EntryRef& entry, std::span<const Tensor> outs, size_t first, bool sparse_too, codec::CodecRef codec);
  /// Reads some rows of a row-sparse key (ascending, each once) into row-sparse tensors.
  base::Status add_rows(EntryRef entry, std::vector<int64_t> rows, std::vector<size_t> places);

  /// Begins the pull, and waits if it is a blocking call; like the methods of api::Table.
  api::Started run(const api::CallOptions& options);

 private:
  /// One read of one table, and the tensors that get its values.
  struct Fetch {
    EntryRef entry;
    Tensor into;                 ///< row-sparse: these rows, in the host's memory or on the key's device; dense: all, in the host's memory
    std::vector<Tensor> copies;  ///< dense tensors that get the same values, also those of devices
    std::vector<size_t> places;  ///< of row-sparse tensors
    codec::CodecRef codec;
    std::unique_ptr<EncodedPull> encoded = {};  ///< for tensors of devices that decode by themselves; null: `copies` has them
    bool is_simple() const { return copies.empty() && places.empty() && encoded == nullptr; }
  };

  /// A whole small key, read into one tensor; the caller keeps the memory alive.
  struct Small {
    Entry* entry;
    std::byte* out;
  };

  /// Keys of one device, which are read together.
  struct OnDevice {
    std::vector<shard::OnDevice::Reading> readings;
    std::string name;  ///< of the last key
  };

  bool add_on_device(Entry& entry, std::span<const Tensor> outs, base::Status* status);
  base::Status read_on_devices();
  /// False: nothing was read.
  bool read_here(Entry& entry, std::span<const Tensor> outs, base::Status* status);
  base::Status read_rows_on_device(const Entry& entry, const Tensor& into) const;
  api::Started begin(const Fetch& fetch, const api::CallOptions& options) const;
  static api::Started begin(const Small& small, const api::CallOptions& options);
  static base::Status decode_on_devices(Fetch& fetch);
  base::Status begin_small(const api::CallOptions& options);
  base::Status finish();

  api::Node& node_;
  tensor::Heap& heap_;
  const EntriesRef entries_;
  const std::function<base::Status(size_t, const Tensor&)> replace_;
  std::vector<Fetch> fetches_;
  std::vector<Small> small_;
  std::map<tensor::Device*, OnDevice> on_devices_;
  std::vector<std::byte*> places_;  ///< scratch memory of read_here()
};

}  // namespace mv::kvstore
