// The members of a cluster while it runs.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstring>

#include "boundary.hpp"
#include "leaving.hpp"
#include "observation.hpp"
#include "options.hpp"
#include "state.hpp"

namespace mv::capi {
namespace {

base::Status next_event(State& state, mv_node node, mv_membership_event* out, int64_t timeout_ms) {
  if (out == nullptr) return base::error(MV_EINVAL, "mv_membership_next: event is NULL");
  auto read = read_struct("mv_membership_next", "mv_membership_event", out, mv_membership_event MV_MEMBERSHIP_EVENT_INIT, kFirstMembershipEvent);
  if (!read.ok()) return read.status();
  if (auto status = check_timeout("mv_membership_next", timeout_ms); !status.ok()) return status;
  auto pin = find_node(state, "mv_membership_next", node);
  if (!pin.ok()) return pin.status();
  const auto told = (*pin.value())->node->next_membership_event(timeout_ms == 0 ? base::Nanos(0) : span_of_ms(timeout_ms));
  if (!told.ok()) return told.status();
  const cluster::MembershipEvent& from = told.value().event;
  mv_membership_event event = MV_MEMBERSHIP_EVENT_INIT;
  event.size = out->size;
  event.kind = static_cast<int32_t>(from.change);
  event.role = from.role & MV_ROLE_ALL;
  event.rank = from.rank;
  event.part = from.change == cluster::Change::kTookOver ? static_cast<int64_t>(from.part) : -1;
  event.epoch = from.epoch;
  event.dropped = told.value().dropped;
  std::memcpy(event.reason, from.reason.data(), std::min(from.reason.size(), sizeof(event.reason) - 1));
  std::memcpy(out, &event, std::min<size_t>(sizeof(event), event.size));
  return {};
}

base::Status check_servers(const char* function, uint64_t servers) {
  if (servers > 0 && servers <= UINT32_MAX) return {};
  return base::error(MV_EINVAL, "{}: {} servers: there must be at least one", function, servers);
}

}  // namespace
}  // namespace mv::capi

mv_status mv_membership_next(mv_node node, mv_membership_event* event, int64_t timeout_ms) {
  return mv::capi::boundary("mv_membership_next", [&](mv::capi::State& state) { return mv::capi::next_event(state, node, event, timeout_ms); });
}

mv_status mv_active_workers(mv_node node, int64_t* workers) {
  return mv::capi::boundary("mv_active_workers", [&](mv::capi::State& state) -> mv::base::Status {
    if (workers == nullptr) return mv::base::error(MV_EINVAL, "mv_active_workers: the pointer for the result is NULL");
    auto pin = mv::capi::find_node(state, "mv_active_workers", node);
    if (!pin.ok()) return pin.status();
    *workers = static_cast<int64_t>((*pin.value())->node->active_workers().size());
    return {};
  });
}

mv_status mv_cluster_drain(mv_node node, int64_t timeout_ms) {
  return mv::capi::boundary("mv_cluster_drain", [&](mv::capi::State& state) -> mv::base::Status {
    if (auto status = mv::capi::check_timeout("mv_cluster_drain", timeout_ms); !status.ok()) return status;
    auto pin = mv::capi::find_node(state, "mv_cluster_drain", node);
    if (!pin.ok()) return pin.status();
    mv::capi::NodeEntry& entry = **pin.value();
    if (auto status = entry.node->why_never_drain(); !status.ok()) return status;
    if (entry.node->identity().worker_id >= 0 && !entry.finished.exchange(true)) mv::capi::close_groups(state, entry);
    return entry.node->drain(mv::capi::span_of_ms(timeout_ms));
  });
}

mv_status mv_cluster_resize(mv_node node, uint64_t servers, int64_t timeout_ms) {
  return mv::capi::boundary("mv_cluster_resize", [&](mv::capi::State& state) -> mv::base::Status {
    if (auto status = mv::capi::check_timeout("mv_cluster_resize", timeout_ms); !status.ok()) return status;
    if (auto status = mv::capi::check_servers("mv_cluster_resize", servers); !status.ok()) return status;
    auto pin = mv::capi::find_node(state, "mv_cluster_resize", node);
    if (!pin.ok()) return pin.status();
    return (*pin.value())->node->resize(static_cast<uint32_t>(servers), mv::capi::span_of_ms(timeout_ms));
  });
}

mv_status mv_cluster_resize_at(const char* settings, uint64_t servers) {
  return mv::capi::guarded("mv_cluster_resize_at", [&]() -> mv::base::Status {
    if (auto status = mv::capi::check_servers("mv_cluster_resize_at", servers); !status.ok()) return status;
    auto what = mv::capi::observation("mv_cluster_resize_at", settings);
    if (!what.ok()) return what.status();
    what.value().servers = static_cast<uint32_t>(servers);
    const auto answer = mv::runtime::observe(what.value());
    return answer.ok() ? mv::base::Status() : answer.status();
  });
}
