#pragma once
// Checks gets of tables, and answers them or passes them to their table's gate.

#include <span>

#include "engine/rpc/server.hpp"
#include "engine/table/server/answers.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/untold_losses.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// Loop thread only.
class Gets {
 public:
  Gets(rpc::Server& rpc, const Roster& roster, const Registry& registry, HeldRequests& held, UntoldLosses& losses, Answers& answers)
      : rpc_(rpc), roster_(roster), registry_(registry), held_(held), losses_(losses), answers_(answers) {}

  void get(const rpc::Asked& asked, const wire::Get& request, std::span<const std::byte> payload);
  /// A worker has received the answer to a get.
  void got(const rpc::Asked& asked, const wire::Got& request);

 private:
  rpc::Server& rpc_;
  const Roster& roster_;
  const Registry& registry_;
  HeldRequests& held_;
  UntoldLosses& losses_;
  Answers& answers_;
};

}  // namespace mv::table
