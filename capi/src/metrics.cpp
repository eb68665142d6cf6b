// The metrics and the trace of a node.

#include <polyverso/polyverso.h>

#include "boundary.hpp"
#include "state.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

mv_status tell(const char* function, mv_node node, base::Result<std::string> (api::Node::*read)(), char* text, uint64_t capacity,
               uint64_t* length) {
  return boundary(function, [&](State& state) -> base::Status {
    if (auto status = check_text_out(function, text, capacity, length); !status.ok()) return status;
    auto pin = find_node(state, function, node);
    if (!pin.ok()) return pin.status();
    const auto told = ((*pin.value())->node.get()->*read)();
    if (!told.ok()) return base::error(told.status().code(), "{}: {}", function, told.status().text());
    put_text(told.value(), text, capacity, length);
    return {};
  });
}

}  // namespace
}  // namespace mv::capi

mv_status mv_metrics_text(mv_node node, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::tell("mv_metrics_text", node, &mv::api::Node::metrics_text, text, capacity, length);
}

mv_status mv_trace_text(mv_node node, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::tell("mv_trace_text", node, &mv::api::Node::trace_text, text, capacity, length);
}
