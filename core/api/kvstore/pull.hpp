#pragma once
// What one call pulls: which tables are read, and where what comes goes then.

#include <functional>
#include <memory>
#include <vector>

#include "api/kvstore/entry.hpp"
#include "tensor/heap.hpp"

namespace mv::kvstore {

/// Tensors to be filled, key after key: as they are now, and how those that are to hold other rows are replaced.
struct Outs {
  std::vector<std::span<const Tensor>> by_key;
  /// The tensor at this place, all keys' tensors counted, is to be this one. It keeps what it needs until the call is over.
  std::function<void(size_t place, Tensor made)> replace;
};

/// Dense values and rows, on their way into tensors. Kept until the call is over.
class Pull : public std::enable_shared_from_this<Pull> {
 public:
  /// @param entries  of the keys that are pulled
  Pull(api::Node& node, tensor::Heap& heap, EntriesRef entries, std::function<void(size_t, Tensor)> replace)
      : node_(node), heap_(heap), entries_(std::move(entries)), replace_(std::move(replace)) {}

  /// A key's whole value, into its tensors; `first` is the place of the first one. Row-sparse ones are left as they are, or take all rows
  /// that are not zero. What can be read at once, without a message, is read here and now.
  /// `codec`: what it travels as, or null.
  base::Status add(const EntryRef& entry, std::span<const Tensor> outs, size_t first, bool sparse_too, codec::CodecRef codec);
  /// Some rows of a row-sparse key (ascending, each once), into row-sparse tensors.
  base::Status add_rows(EntryRef entry, std::vector<int64_t> rows, std::vector<size_t> places);

  /// Begins it, and waits if it is a blocking call; as the methods of api::Table.
  api::Started run(const api::CallOptions& options);

 private:
  /// Something to be read of one table, and who wants it.
  struct Fetch {
    EntryRef entry;
    Tensor into;                 ///< row-sparse: these rows; dense: all
    std::vector<Tensor> copies;  ///< dense tensors that get the same
    std::vector<size_t> places;  ///< of row-sparse ones
    codec::CodecRef codec;
    bool is_simple() const { return copies.empty() && places.empty(); }
  };

  /// All of a small key into one tensor, whose memory the caller keeps.
  struct Small {
    Entry* entry;
    std::byte* out;
  };

  /// False: it was not read.
  bool read_here(Entry& entry, std::span<const Tensor> outs, base::Status* status);
  static api::Started begin(const Fetch& fetch, const api::CallOptions& options);
  static api::Started begin(const Small& small, const api::CallOptions& options);
  base::Status begin_small(const api::CallOptions& options);
  base::Status finish();

  api::Node& node_;
  tensor::Heap& heap_;
  const EntriesRef entries_;
  const std::function<void(size_t, Tensor)> replace_;
  std::vector<Fetch> fetches_;
  std::vector<Small> small_;
  std::vector<std::byte*> places_;  ///< room of read_here()
};

}  // namespace mv::kvstore
