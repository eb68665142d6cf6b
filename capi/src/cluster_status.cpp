// The status of a cluster, requested by a member or from outside.

#include <polyverso/polyverso.h>

#include <optional>

#include "boundary.hpp"
#include "observation.hpp"
#include "runtime/observer.hpp"
#include "settings.hpp"
#include "spec.hpp"
#include "state.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

/// How long an observer waits by default.
constexpr base::Nanos kPatienceWithMaster = std::chrono::seconds(5);

status::Form form_of(uint32_t flags) { return {(flags & MV_JSON) != 0, (flags & MV_LIVE) != 0}; }

base::Status tell_status(State& state, mv_node node, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  if (auto status = check_text_flags("mv_status_text", flags, MV_LIVE); !status.ok()) return status;
  if (auto status = check_text_out("mv_status_text", text, capacity, length); !status.ok()) return status;
  auto pin = find_node(state, "mv_status_text", node);
  if (!pin.ok()) return pin.status();
  return answer(fmt::format("mv_status_text {} {}", node, flags), text, capacity, length,
                [&] { return (*pin.value())->node->status(form_of(flags)); });
}

/// rank: only the log of this one.
base::Status observe(const char* function, const char* settings, std::optional<int64_t> rank, uint32_t flags, char* text, uint64_t capacity,
                     uint64_t* length) {
  if (auto status = check_text_flags(function, flags, rank ? 0 : MV_LIVE); !status.ok()) return status;
  if (auto status = check_text_out(function, text, capacity, length); !status.ok()) return status;
  if (rank && (*rank < 0 || *rank > UINT32_MAX)) return base::error(MV_EINVAL, "{}: {} is not a rank", function, *rank);
  auto about = observation(function, settings);
  if (!about.ok()) return about.status();
  runtime::Observation& what = about.value();
  what.json = (flags & MV_JSON) != 0;
  what.live = (flags & MV_LIVE) != 0;
  if (rank) what.log_of = static_cast<uint32_t>(*rank);
  return answer(fmt::format("{} {} {} {}", function, flags, rank.value_or(0), settings != nullptr ? settings : ""), text, capacity, length,
                [&] { return runtime::observe(what); });
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

base::Result<runtime::Observation> observation(const char* function, const char* settings) {
  InitRequest request(function);
  if (settings != nullptr)
    if (auto status = request.add_text(settings, "the settings"); !status.ok()) return status;
  const auto whom = request.whom_to_ask(kPatienceWithMaster);
  if (!whom.ok()) return whom.status();
  const runtime::Settings& found = whom.value();
  return runtime::Observation{.address = found.master, .secret = found.secret, .patience = found.init_timeout, .tls = found.tls_settings()};
}

}  // namespace mv::capi

mv_status mv_status_text(mv_node node, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::boundary("mv_status_text", [&](mv::capi::State& state) {
    return mv::capi::tell_status(state, node, flags, text, capacity, length);
  });
}

mv_status mv_cluster_status_text(const char* settings, uint32_t flags, char* text, uint64_t capacity,
                                 uint64_t* length) {
  return mv::capi::guarded("mv_cluster_status_text",
                           [&] { return mv::capi::observe("mv_cluster_status_text", settings, std::nullopt, flags, text, capacity, length); });
}

mv_status mv_cluster_log_text(const char* settings, int64_t rank, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::guarded("mv_cluster_log_text",
                           [&] { return mv::capi::observe("mv_cluster_log_text", settings, rank, flags, text, capacity, length); });
}

mv_status mv_report(mv_node node, const char* name, double value) {
  return mv::capi::boundary("mv_report", [&](mv::capi::State& state) { return mv::capi::report(state, node, name, value); });
}
