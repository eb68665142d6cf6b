#pragma once
// The receiver's side of a transfer: see transfer.hpp.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "engine/replica/part.hpp"

namespace mv::replica {

/// Receives the state of a part, and holds the inputs that arrive meanwhile. Loop thread only.
class Arrival {
 public:
  /// @param self  this process
  Arrival(Part& part, table::Server& tables, base::Peer self) : part_(part), tables_(tables), self_(self) {}

  /// State, Rows or End. MV_EPROTOCOL, MV_EINVAL. MV_ENOMEM, now and for everything that follows
  base::Status take(const cluster::Member& server, const wire::Replicate& piece, std::span<const std::byte> payload);
  /// Holds an input that arrives after the state, or after other inputs that wait here.
  void hold(const rpc::Asked& asked, const wire::Message& input, std::span<const std::byte> payload, const base::SinkRef& staged);
  /// All of the state has arrived. The copy is equal to the part once the inputs that wait here are processed.
  bool has_all() const { return has_all_; }
  /// The bytes of the inputs that wait here.
  size_t held_bytes() const { return held_bytes_; }
  bool is_over() const { return has_all_ && held_.empty(); }
  /// Processes the next input that waits here, and returns the request that brought it.
  rpc::Asked process_next(base::Status* status);

 private:
  struct Held {
    rpc::Asked asked;
    std::vector<std::byte> header;
    std::vector<std::byte> copied;  ///< the payload, or
    std::span<const std::byte> payload;
    base::SinkRef staged;  ///< keeps it alive
    size_t bytes() const { return header.size() + payload.size(); }
  };
  base::Status take_piece(const cluster::Member& server, const wire::Replicate& piece, std::span<const std::byte> payload);
  base::Status take_rows(const wire::ReplicaRows& rows, std::span<const std::byte> payload);

  Part& part_;
  table::Server& tables_;
  const base::Peer self_;
  bool has_all_ = false;
  base::Status no_memory_;       ///< an error: something is missing
  std::vector<std::byte> rows_;  ///< the bytes of the current rows that have arrived
  std::deque<Held> held_;
  size_t held_bytes_ = 0;
};

}  // namespace mv::replica
