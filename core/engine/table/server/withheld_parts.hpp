#pragma once
// The parts of merging tables' rounds that a server has not sent to its copy in another process yet.

#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/pool.hpp"
#include "engine/table/server/held_requests.hpp"

namespace mv::table {

/// A server with a back-up withholds the parts of a round until the round is merged, and then sends their sum once: see
/// engine/replica/part_rounds.cpp. Until then they wait at the gate like other parts, but are not acknowledged. The
/// copy receives one input with the parts without their values, and with the sum that replaces these values. Loop
/// thread only.
class WithheldParts {
 public:
  /// A stripe that was merged.
  struct Merge {
    struct Addend {
      rpc::Asked asked;
      std::span<const std::byte> payload;
      std::shared_ptr<const void> keep;  ///< null for a payload that is only valid during the request's call
    };
    uint32_t table;
    std::vector<Addend> parts;
    base::Pool::Block sum = {};  ///< the sum that went through the updater, in the table's dtype; empty if these parts can't be replaced by their sum
  };

  // ---- the server

  /// Withholds a part: it is not acknowledged from now on. To be called before the part arrives.
  void withhold(const rpc::Asked& asked) { accepted_.try_emplace(asked); }
  bool withholds(const rpc::Asked& asked) const { return accepted_.contains(asked); }
  /// Whether the part is withheld. If so, keeps the gate's acknowledgement of it.
  bool keeps_acceptance(const rpc::Asked& asked, uint32_t table) {
    const auto found = accepted_.find(asked);
    if (found == accepted_.end()) return false;
    found->second = table;
    return true;
  }
  /// Forgets the part. Returns its table if the gate has accepted it.
  std::optional<uint32_t> release(const rpc::Asked& asked) {
    const auto found = accepted_.extract(asked);
    return found ? found.mapped() : std::nullopt;
  }
  /// Between begin() and end(), merges are noted, and sums are made for them.
  void begin() { notes_ = true; }
  std::vector<Merge> end() {
    notes_ = false;
    return std::exchange(merges_, {});
  }
  bool notes() const { return notes_; }
  void note(uint32_t table, std::span<const rpc::Asked> parts, const HeldRequests& held) {
    Merge& merge = merges_.emplace_back(Merge{table, {}});
    for (const rpc::Asked& asked : parts)
      if (const HeldChange* const part = held.changes().find(asked)) merge.parts.push_back({asked, part->payload, part->keep});
  }
  void summed_up(const base::Pool::Block& sum) { merges_.back().sum = sum; }

  // ---- the copy

  /// Parts arrive without values. The merge of their stripe uses `sum` instead.
  void expect_sum(std::span<const std::byte> sum) { given_ = sum; }
  /// nullopt: no sum is expected, or it was used already.
  const std::optional<std::span<const std::byte>>& expected_sum() const { return given_; }
  void sum_taken() { given_.reset(); }

 private:
  std::unordered_map<rpc::Asked, std::optional<uint32_t>, rpc::Asked::Hash> accepted_;  ///< the table, if the gate has accepted the part
  std::vector<Merge> merges_;
  bool notes_ = false;
  std::optional<std::span<const std::byte>> given_;
};

}  // namespace mv::table
