#pragma once
// Gets that wait at a gate until a count is high enough.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/rpc/pending.hpp"

namespace mv::table {

/// Loop thread only.
class WaitingGets {
 public:
  void add(const rpc::Asked& asked, uint64_t needs) { gets_.push_back({asked, needs}); }
  struct Get {
    rpc::Asked asked;
    uint64_t needs;
  };
  /// In order of arrival.
  const std::vector<Get>& all() const { return gets_; }

  /// Calls serve(asked) for each get that needs no more than `reached()`, in order of arrival. serve() may call this
  /// object.
  template <typename Reached, typename Serve>
  void serve(const Reached& reached, const Serve& serve) {
    for (;;) {
      const uint64_t now = reached();
      const auto ready = std::find_if(gets_.begin(), gets_.end(), [&](const Get& get) { return get.needs <= now; });
      if (ready == gets_.end()) return;
      const rpc::Asked asked = ready->asked;
      gets_.erase(ready);
      serve(asked);
    }
  }
  /// Removes a withdrawn get, and returns its need; nullopt if it was not here.
  std::optional<uint64_t> withdraw(const rpc::Asked& asked) {
    const auto found = std::find_if(gets_.begin(), gets_.end(), [&](const Get& get) { return get.asked == asked; });
    if (found == gets_.end()) return {};
    const uint64_t needs = found->needs;
    gets_.erase(found);
    return needs;
  }
  /// Removes and returns the gets that need more than this.
  std::vector<rpc::Asked> take_beyond(uint64_t reached) {
    const auto beyond = std::stable_partition(gets_.begin(), gets_.end(), [&](const Get& get) { return get.needs <= reached; });
    std::vector<rpc::Asked> taken;
    for (auto get = beyond; get != gets_.end(); ++get) taken.push_back(get->asked);
    gets_.erase(beyond, gets_.end());
    return taken;
  }

 private:
  std::vector<Get> gets_;
};

}  // namespace mv::table
