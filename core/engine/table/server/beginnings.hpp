#pragma once
// How workers that have joined later begin on tables whose calls form rounds: see engine/table/client/entry.hpp.

#include <span>
#include <vector>

#include "engine/rpc/server.hpp"
#include "engine/table/server/registry.hpp"
#include "engine/table/server/request_clock.hpp"
#include "engine/table/server/roster.hpp"

namespace mv::table {

/// These tables as the answer to Create, Open and Begin describes them to a worker; -1: to another process.
std::vector<wire::CreatedTable> created_tables(const Registry& registry, std::span<const uint32_t> numbers, int64_t worker);

/// Loop thread only.
class Beginnings {
 public:
  Beginnings(rpc::Server& rpc, const RequestClock& clock, const Roster& roster, Registry& registry)
      : rpc_(rpc), clock_(clock), roster_(roster), registry_(registry) {}

  void begin(const rpc::Asked& asked, const wire::Begin& request);

 private:
  base::Status check(size_t worker, const wire::Begin& request) const;

  rpc::Server& rpc_;
  const RequestClock& clock_;
  const Roster& roster_;
  Registry& registry_;
  wire::FrameBuilder builder_;
};

}  // namespace mv::table
