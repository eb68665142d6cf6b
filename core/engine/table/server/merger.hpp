#pragma once
// Combines the parts that the gate of a merging table has collected into one add.

#include <span>

#include "base/pool.hpp"
#include "engine/table/server/applier.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/withheld_parts.hpp"

namespace mv::table {

/// Loop thread only.
class Merger {
 public:
  Merger(const Roster& roster, base::Pool& pool, const HeldRequests& held, Applier& applier, WithheldParts& withheld)
      : roster_(roster), pool_(pool), held_(held), applier_(applier), withheld_(withheld) {}

  /// Puts the sum of all parts, in their order, through the updater once.
  base::Status apply(Table& table, std::span<const rpc::Asked> parts);

 private:
  base::Status apply_parts(Table& table, std::span<const rpc::Asked> parts);
  using Parts = std::span<const HeldChange* const>;
  base::Status apply_sum(Table& table, const HeldChange& part, std::span<const std::byte> sum);
  bool has_same_elements(const Table& table, Parts parts) const;
  base::Status sum_up(const Table& table, Parts parts, uint64_t first, uint64_t count, base::Pool::Block* sum);
  base::Status make_sum(const Table& table, Parts parts, uint64_t first, uint64_t count, base::Pool::Block* sum);
  base::Status add_sum(Table& table, Parts parts, shard::Range elements, shard::ChangePart piece);
  base::Status apply_elements(Table& table, Parts parts);

  const Roster& roster_;
  base::Pool& pool_;
  const HeldRequests& held_;
  Applier& applier_;
  WithheldParts& withheld_;
};

}  // namespace mv::table
