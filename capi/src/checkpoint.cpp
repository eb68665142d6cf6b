// Saves, loads and inspects checkpoints.

#include <polyverso/polyverso.h>

#include <string>

#include "boundary.hpp"
#include "calls.hpp"
#include "checkpoint/inspect.hpp"
#include "state.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

/// Checks a call on a path, finds the node, and starts it: start(Node&, path, CallOptions).
template <typename Start>
base::Status run_on_path(State& state, const char* function, const char* argument, mv_node node, const char* path,
                         const mv_call_options* given, Start start) {
  CallPlan plan;
  if (auto status = plan_call(function, given, MayForget::kNo, &plan); !status.ok()) return status;
  plan.lends = false;
  if (path == nullptr || path[0] == '\0')
    return base::error(MV_EINVAL, "{}: {} is {}", function, argument, path == nullptr ? "NULL" : "empty");
  auto pin = find_working_node(state, function, node);
  if (!pin.ok()) return pin.status();
  const NodeRef& entry = *pin.value();
  return run_call(state, entry, plan,
                  [&](const api::CallOptions& how) { return start(*entry->node, std::string(path), how); });
}

base::Status inspect(const char* path, char* text, uint64_t capacity, uint64_t* length) {
  if (auto status = check_text_out("mv_checkpoint_inspect", text, capacity, length); !status.ok()) return status;
  if (path == nullptr || path[0] == '\0')
    return base::error(MV_EINVAL, "mv_checkpoint_inspect: path is {}", path == nullptr ? "NULL" : "empty");
  const auto json = checkpoint::inspect(path);
  if (!json.ok()) return json.status();
  put_text(json.value(), text, capacity, length);
  return {};
}

}  // namespace
}  // namespace mv::capi

using mv::capi::State;
using mv::api::CallOptions;
using mv::api::Node;

mv_status mv_checkpoint_save(mv_node node, const char* directory, uint64_t keep, const mv_call_options* options) {
  return mv::capi::boundary("mv_checkpoint_save", [&](State& state) {
    return mv::capi::run_on_path(
        state, "mv_checkpoint_save", "directory", node, directory, options,
        [&](Node& on, const std::string& path, const CallOptions& how) { return on.save_checkpoint(path, keep, how); });
  });
}

mv_status mv_checkpoint_load(mv_node node, const char* path, const mv_call_options* options) {
  return mv::capi::boundary("mv_checkpoint_load", [&](State& state) {
    return mv::capi::run_on_path(
        state, "mv_checkpoint_load", "path", node, path, options,
        [](Node& on, const std::string& from, const CallOptions& how) { return on.load_checkpoint(from, how); });
  });
}

mv_status mv_checkpoint_inspect(const char* path, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::guarded("mv_checkpoint_inspect", [&] { return mv::capi::inspect(path, text, capacity, length); });
}
