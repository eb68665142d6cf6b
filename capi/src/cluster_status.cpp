// The status of a cluster, requested by a member or from outside.

#include <polyverso/polyverso.h>

#include "boundary.hpp"
#include "runtime/observer.hpp"
#include "settings.hpp"
#include "spec.hpp"
#include "state.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

/// How long an observer waits by default.
constexpr base::Nanos kPatienceWithMaster = std::chrono::seconds(5);

base::Status tell_status(State& state, mv_node node, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  if (auto status = check_text_flags("mv_status_text", flags); !status.ok()) return status;
  if (auto status = check_text_out("mv_status_text", text, capacity, length); !status.ok()) return status;
  auto pin = find_node(state, "mv_status_text", node);
  if (!pin.ok()) return pin.status();
  return answer(fmt::format("mv_status_text {} {}", node, flags), text, capacity, length,
                [&] { return (*pin.value())->node->status((flags & MV_JSON) != 0); });
}

base::Status observe(const char* settings, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  constexpr const char* kFunction = "mv_cluster_status_text";
  if (auto status = check_text_flags(kFunction, flags); !status.ok()) return status;
  if (auto status = check_text_out(kFunction, text, capacity, length); !status.ok()) return status;
  InitRequest request(kFunction);
  if (settings != nullptr)
    if (auto status = request.add_text(settings, "the settings"); !status.ok()) return status;
  const auto whom = request.whom_to_ask(kPatienceWithMaster);
  if (!whom.ok()) return whom.status();
  return answer(fmt::format("{} {} {}", kFunction, flags, settings != nullptr ? settings : ""), text, capacity, length, [&] {
    return runtime::observe({whom.value().master, whom.value().secret, (flags & MV_JSON) != 0, whom.value().init_timeout});
  });
}

base::Status report(State& state, mv_node node, const char* name, double value) {
  if (name == nullptr) return base::error(MV_EINVAL, "mv_report: name is NULL");
  if (auto status = check_name("mv_report", name, "the number's name"); !status.ok()) return status;
  auto pin = find_node(state, "mv_report", node);
  if (!pin.ok()) return pin.status();
  const base::Status noted = (*pin.value())->node->report(name, value);
  return noted.ok() ? noted : base::error(noted.code(), "mv_report: {}", noted.text());
}

}  // namespace
}  // namespace mv::capi

mv_status mv_status_text(mv_node node, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::boundary("mv_status_text", [&](mv::capi::State& state) {
    return mv::capi::tell_status(state, node, flags, text, capacity, length);
  });
}

mv_status mv_cluster_status_text(const char* settings, uint32_t flags, char* text, uint64_t capacity,
                                 uint64_t* length) {
  return mv::capi::guarded("mv_cluster_status_text",
                           [&] { return mv::capi::observe(settings, flags, text, capacity, length); });
}

mv_status mv_report(mv_node node, const char* name, double value) {
  return mv::capi::boundary("mv_report", [&](mv::capi::State& state) { return mv::capi::report(state, node, name, value); });
}
