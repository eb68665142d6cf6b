#pragma once
// Gets that wait at a gate until a count is high enough.

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/rpc/pending.hpp"

namespace mv::table {

/// Thousands of gets may wait, so none of this looks at all of them, except all(). Loop thread only.
class WaitingGets {
 public:
  void add(const rpc::Asked& asked, uint64_t needs) {
    static_cast<void>(withdraw(asked));
    const Key key{needs, ++arrived_};
    gets_.emplace(key, asked);
    keys_.emplace(asked, key);
  }
  struct Get {
    rpc::Asked asked;
    uint64_t needs;
  };
  /// By what they need, and then in order of arrival.
  std::vector<Get> all() const {
    std::vector<Get> all;
    all.reserve(gets_.size());
    for (const auto& [key, asked] : gets_) all.push_back({asked, key.needs});
    return all;
  }

  /// Calls serve(asked) for each get that needs no more than `reached()`, in the order of all(). serve() may call this
  /// object.
  template <typename Reached, typename Serve>
  void serve(const Reached& reached, const Serve& serve) {
    while (!gets_.empty() && gets_.begin()->first.needs <= reached()) {
      const rpc::Asked asked = gets_.begin()->second;
      gets_.erase(gets_.begin());
      keys_.erase(asked);
      serve(asked);
    }
  }
  /// Removes a withdrawn get, and returns its need; nullopt if it was not here.
  std::optional<uint64_t> withdraw(const rpc::Asked& asked) {
    const auto found = keys_.find(asked);
    if (found == keys_.end()) return {};
    const Key key = found->second;
    keys_.erase(found);
    gets_.erase(key);
    return key.needs;
  }
  /// Removes and returns the gets that need more than this, in order of arrival.
  std::vector<rpc::Asked> take_beyond(uint64_t reached) {
    std::map<uint64_t, rpc::Asked> taken;
    const auto beyond = gets_.upper_bound({reached, UINT64_MAX});
    for (auto get = beyond; get != gets_.end(); ++get) {
      taken.emplace(get->first.arrived, get->second);
      keys_.erase(get->second);
    }
    gets_.erase(beyond, gets_.end());
    std::vector<rpc::Asked> in_order;
    for (const auto& [arrived, asked] : taken) in_order.push_back(asked);
    return in_order;
  }

 private:
  struct Key {
    uint64_t needs, arrived;
    auto operator<=>(const Key&) const = default;
  };

  uint64_t arrived_ = 0;
  std::map<Key, rpc::Asked> gets_;
  std::unordered_map<rpc::Asked, Key, rpc::Asked::Hash> keys_;
};

}  // namespace mv::table
