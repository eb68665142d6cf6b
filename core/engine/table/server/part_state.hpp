#pragma once
// The complete state of a server's part besides the values, for a copy of the part in another process
// (engine/replica/).

#include <vector>

#include "engine/table/server/answers.hpp"
#include "engine/table/server/creations.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/untold_losses.hpp"
#include "engine/table/server/registry.hpp"
#include "engine/table/server/state_transfers.hpp"

namespace mv::table {

/// A part can be copied when nothing waits in it: its state then consists of counts. Usually such moments occur between
/// the rounds of the workers. They do not occur if workers are always rounds apart. Requests that would begin something
/// new are then left at their clients for a moment: see may_start(). Loop thread only.
class PartState {
 public:
  PartState(const Roster& roster, Registry& registry, const HeldRequests& held, const Creations& creations, const Answers& answers,
            const StateTransfers& transfers, UntoldLosses& losses)
      : roster_(roster), registry_(registry), held_(held), creations_(creations), answers_(answers), transfers_(transfers), losses_(losses) {}

  /// Nothing waits, so write() writes the complete state.
  bool is_idle() const;
  /// Whether the request completes something that waits here, or ends at once.
  bool may_start(const rpc::Asked& asked, const wire::Message& request) const;

  /// The parts of the state besides tables; the caller adds the members and the streams.
  std::vector<flatbuffers::Offset<wire::Loss>> write_losses(flatbuffers::FlatBufferBuilder& fbb) const;
  flatbuffers::Offset<wire::PartTable> write_table(flatbuffers::FlatBufferBuilder& fbb, uint32_t number) const {
    return registry_.at(number)->write(fbb);
  }
  /// Reads the state into a new server, whose start() was called. MV_EPROTOCOL; MV_ENOMEM
  base::Status restore(const wire::PartState& state);

 private:
  const Roster& roster_;
  Registry& registry_;
  const HeldRequests& held_;
  const Creations& creations_;
  const Answers& answers_;
  const StateTransfers& transfers_;
  UntoldLosses& losses_;
};

}  // namespace mv::table
