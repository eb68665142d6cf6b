#pragma once
// What the codecs of a key have left out so far. Saving and loading: residual_exchange.cpp.

#include <cstddef>
#include <utility>
#include <vector>

namespace mv::kvstore {

/// The residual of each sender of a key; empty if it has none.
using Senders = std::vector<std::vector<std::byte>>;

/// The residuals of a key: what the codec has left out of its pushes so far, for each sender. A sender is this worker,
/// or in local stores each of its devices. Elements of the key's storage dtype. Its owner locks.
class Residuals {
 public:
  /// All zeros at first.
  std::byte* of(size_t sender, size_t bytes) {
    if (senders_.size() <= sender) senders_.resize(sender + 1);
    senders_[sender].resize(bytes);
    return senders_[sender].data();
  }
  bool any() const { return !senders_.empty(); }
  void clear() { senders_.clear(); }

  const Senders& senders() const { return senders_; }
  void restore(Senders senders) { senders_ = std::move(senders); }

 private:
  Senders senders_;
};

}  // namespace mv::kvstore
