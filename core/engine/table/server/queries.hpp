#pragma once
// Answers questions about whole tables: their names, their usage, and which rows are stored.

#include "base/pool.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// Loop thread only.
class Queries {
 public:
  Queries(rpc::Server& rpc, base::Pool& pool, const Registry& registry) : rpc_(rpc), pool_(pool), registry_(registry) {}

  void list(const rpc::Asked& asked);
  void stat(const rpc::Asked& asked, const wire::Stat& request);
  void scan(const rpc::Asked& asked, const wire::Scan& request);

 private:
  rpc::Server& rpc_;
  base::Pool& pool_;
  const Registry& registry_;
  wire::FrameBuilder builder_;
};

}  // namespace mv::table
