// The identity of a node in its cluster, and the barrier.

#include <polyverso/polyverso.h>

#include "boundary.hpp"
#include "calls.hpp"
#include "state.hpp"

namespace mv::capi {
namespace {

template <typename T, typename Read>
mv_status tell(const char* function, mv_node handle, T* out, Read read) {
  return boundary(function, [&](State& state) -> base::Status {
    if (out == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the result is NULL", function);
    auto pin = find_node(state, function, handle);
    if (!pin.ok()) return pin.status();
    *out = read((*pin.value())->node->identity());
    return {};
  });
}

}  // namespace
}  // namespace mv::capi

using mv::runtime::Identity;

mv_status mv_rank(mv_node node, int64_t* rank) {
  return mv::capi::tell("mv_rank", node, rank, [](const Identity& self) { return self.rank; });
}
mv_status mv_size(mv_node node, int64_t* size) {
  return mv::capi::tell("mv_size", node, size, [](const Identity& self) { return self.size; });
}
mv_status mv_worker_id(mv_node node, int64_t* worker_id) {
  return mv::capi::tell("mv_worker_id", node, worker_id, [](const Identity& self) { return self.worker_id; });
}
mv_status mv_num_workers(mv_node node, int64_t* num_workers) {
  return mv::capi::tell("mv_num_workers", node, num_workers, [](const Identity& self) { return self.num_workers; });
}
mv_status mv_server_id(mv_node node, int64_t* server_id) {
  return mv::capi::tell("mv_server_id", node, server_id, [](const Identity& self) { return self.server_id; });
}
mv_status mv_num_servers(mv_node node, int64_t* num_servers) {
  return mv::capi::tell("mv_num_servers", node, num_servers, [](const Identity& self) { return self.num_servers; });
}
mv_status mv_is_master(mv_node node, int32_t* is_master) {
  return mv::capi::tell("mv_is_master", node, is_master,
                        [](const Identity& self) { return self.worker_id == 0 ? 1 : 0; });
}
mv_status mv_is_sync(mv_node node, int32_t* is_sync) {
  return mv::capi::tell("mv_is_sync", node, is_sync, [](const Identity& self) { return self.sync ? 1 : 0; });
}

mv_status mv_barrier(mv_node node, const mv_call_options* options) {
  return mv::capi::boundary("mv_barrier", [&](mv::capi::State& state) -> mv::base::Status {
    mv::capi::CallPlan plan;
    auto status = mv::capi::plan_call("mv_barrier", options, mv::capi::MayForget::kNo, &plan);
    if (!status.ok()) return status;
    plan.lends = false;
    auto pin = mv::capi::find_working_node(state, "mv_barrier", node);
    if (!pin.ok()) return pin.status();
    const auto& entry = *pin.value();
    return mv::capi::run_call(state, entry, plan,
                              [&](const mv::api::CallOptions& how) { return entry->node->barrier(how); });
  });
}
