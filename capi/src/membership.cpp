// The members of a cluster while it runs.

#include <polyverso/polyverso.h>

#include "boundary.hpp"
#include "options.hpp"
#include "state.hpp"

mv_status mv_cluster_drain(mv_node node, int64_t timeout_ms) {
  return mv::capi::boundary("mv_cluster_drain", [&](mv::capi::State& state) -> mv::base::Status {
    if (auto status = mv::capi::check_timeout("mv_cluster_drain", timeout_ms); !status.ok()) return status;
    auto pin = mv::capi::find_node(state, "mv_cluster_drain", node);
    if (!pin.ok()) return pin.status();
    return (*pin.value())->node->drain(mv::capi::span_of_ms(timeout_ms));
  });
}
