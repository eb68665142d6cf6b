#pragma once
// Carries out the decisions of the tables' gates.

#include <span>

#include "engine/rpc/server.hpp"
#include "engine/table/server/answers.hpp"
#include "engine/table/server/applier.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/merger.hpp"
#include "engine/table/server/withheld_parts.hpp"

namespace mv::table {

/// Loop thread only.
class GateDecisions {
 public:
  GateDecisions(rpc::Server& rpc, const RequestClock& clock, HeldRequests& held, Applier& applier, Merger& merger, Answers& answers,
                WithheldParts& withheld)
      : rpc_(rpc), clock_(clock), held_(held), applier_(applier), merger_(merger), answers_(answers), withheld_(withheld) {}

  void apply_change(Table& table, const rpc::Asked& asked);
  void grant_change(const rpc::Asked& asked) { rpc_.grant(asked); }
  void serve_get(Table& table, const rpc::Asked& asked);
  void merge(Table& table, std::span<const rpc::Asked> parts);
  /// Acknowledges a part of a merged add.
  void accept(Table& table, const rpc::Asked& asked);
  void fail(Table& table, const rpc::Asked& asked, const base::Status& why);

 private:
  rpc::Server& rpc_;
  const RequestClock& clock_;
  HeldRequests& held_;
  Applier& applier_;
  Merger& merger_;
  Answers& answers_;
  WithheldParts& withheld_;
};

}  // namespace mv::table
