#pragma once
// Adds to and gets from many small tables in one request.

#include <span>

#include "engine/rpc/server.hpp"
#include "engine/table/server/answers.hpp"
#include "engine/table/server/changes.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/untold_losses.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// Each part of such a request waits at the gate of its table like any other request. Loop thread only.
class ManyRequests {
 public:
  ManyRequests(rpc::Server& rpc, RequestClock& clock, const Roster& roster, const Registry& registry, HeldRequests& held, UntoldLosses& losses,
               Changes& changes, Answers& answers)
      : rpc_(rpc), clock_(clock), roster_(roster), registry_(registry), held_(held), losses_(losses), changes_(changes), answers_(answers) {}

  void change(const rpc::Asked& asked, const wire::ChangeMany& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  void get(const rpc::Asked& asked, const wire::GetMany& request);

 private:
  void expect(const flatbuffers::Vector<uint32_t>& numbers, uint32_t at) const;

  rpc::Server& rpc_;
  RequestClock& clock_;
  const Roster& roster_;
  const Registry& registry_;
  HeldRequests& held_;
  UntoldLosses& losses_;
  Changes& changes_;
  Answers& answers_;
};

}  // namespace mv::table
