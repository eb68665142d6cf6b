#pragma once
// The requests that wait at the gates of a server's tables.

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "engine/table/gates/gate_log.hpp"
#include "engine/table/server/request_clock.hpp"
#include "engine/table/server/requests.hpp"
#include "shard/shard.hpp"

namespace mv::table {

/// A checked change: what to do when its turn has come, and its payload if that has arrived.
struct HeldChange {
  uint64_t first, count, rows;
  std::span<const std::byte> payload;
  std::shared_ptr<const void> keep;  ///< the payload's memory, if it outlives the call
  wire::Write write = wire::Write::Add;
  shard::ChangePart piece = shard::ChangePart::kFirst;
  std::shared_ptr<const shard::UpdaterSpec> updater = {};  ///< instead of values
  codec::CodecRef codec = {};                              ///< the encoding of the payload, or null
  base::Nanos since{0};                                    ///< when it came; only while it is held
  uint32_t table = 0;                                      ///< its table's number; only while it is held
};

/// A checked get.
struct HeldGet {
  uint64_t first, count;
  std::vector<int64_t> ids;
  base::Nanos since{0};        ///< when it came; only while it is held
  uint32_t table = 0;          ///< its table's number; only while it is held
  codec::CodecRef codec = {};  ///< the encoding of the answer, or null
};

/// Holds the requests of all tables together: the cost of a look-up must not depend on the number of tables. Loop
/// thread only.
class HeldRequests {
 public:
  explicit HeldRequests(const RequestClock& clock) : clock_(clock) {}

  Requests<HeldChange>& changes() { return changes_; }
  const Requests<HeldChange>& changes() const { return changes_; }
  Requests<HeldGet>& gets() { return gets_; }
  /// Holds the request from now on.
  void hold(const rpc::Asked& asked, uint32_t table, HeldChange&& change) {
    change.since = clock_.now();
    change.table = table;
    changes_.insert(asked, std::move(change));
  }
  void hold(const rpc::Asked& asked, uint32_t table, HeldGet&& get) {
    get.since = clock_.now();
    get.table = table;
    gets_.insert(asked, std::move(get));
  }
  void erase(const rpc::Asked& asked) {
    changes_.erase(asked);
    gets_.erase(asked);
  }

  /// The table is gone.
  void forget_table(uint32_t number);
  /// The gets of a lost worker, and those of its changes that `drops` names.
  template <typename Drops>
  void forget_worker(base::Peer worker, Drops drops) {
    changes_.erase_if([&](const rpc::Asked& asked, const HeldChange& change) { return asked.client == worker && drops(change); });
    gets_.erase_if([&](const rpc::Asked& asked, const HeldGet&) { return asked.client == worker; });
  }

  size_t size() const { return changes_.size() + gets_.size(); }
  /// The table of a request, or null if it is not held.
  const uint32_t* table_of(const rpc::Asked& asked) const;
  /// When the request came; now if it is not held.
  base::Nanos since(const rpc::Asked& asked) const;
  /// The numbers of the tables with held requests.
  std::set<uint32_t> tables() const;
  /// The requests at the gate of one table, in the order of the clients and their calls.
  std::set<rpc::Asked> of_table(uint32_t number) const;

  GateLog& log() { return log_; }
  const GateLog& log() const { return log_; }

 private:
  const RequestClock& clock_;
  Requests<HeldChange> changes_;
  Requests<HeldGet> gets_;
  GateLog log_;
};

}  // namespace mv::table
