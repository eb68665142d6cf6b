// mv_doctor_text(): what was detected, what works, and how to fix what does not.

#include <polyverso/polyverso.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "api/group/tuning.hpp"
#include "boundary.hpp"
#include "doctor/keeper.hpp"
#include "doctor/machine.hpp"
#include "doctor/master.hpp"
#include "doctor/peers.hpp"
#include "doctor_report.hpp"
#include "state.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kFlags = uint32_t{MV_JSON} | uint32_t{MV_REACH} | uint32_t{MV_TUNE};
constexpr base::Nanos kPatience = 3s, kPatienceByChance = 1s;
/// For rank 0 of a launcher's job: it either answers quickly or is not there.
constexpr base::Nanos kPatienceByName = 200ms;

void append(DoctorReport& report, doctor::Findings findings) {
  std::move(findings.all().begin(), findings.all().end(), std::back_inserter(report.findings));
}

void examine_machine(DoctorReport& report) {
  append(report, doctor::examine_processors(report.settings));
  append(report, doctor::examine_memory(report.settings));
  append(report, doctor::examine_network(report.settings));
  append(report, doctor::examine_transports(report.settings));
}

void examine_way_to_master(DoctorReport& report, bool asked_for) {
  const runtime::Settings& settings = report.settings;
  const bool is_other = settings.nodes > 1 && settings.rank != 0;
  if (settings.is_named()) append(report, doctor::reach_keeper(settings, kPatience));
  if (!settings.master.empty() && settings.transport != "inproc" && (asked_for || is_other))
    append(report,
           asked_for
               ? doctor::reach_master(settings, doctor::Expected::kRuns, kPatience)
               : doctor::reach_master(settings, doctor::Expected::kMayRun, kPatienceByChance));
  else if (!settings.rendezvous.empty() && is_other)
    append(report, doctor::reach_by_name(settings, kPatienceByName));
}

/// Examines the node that would start now; with MV_REACH, only the connection to the master.
DoctorReport examine_start(uint32_t flags) {
  DoctorReport report;
  const bool reach = (flags & MV_REACH) != 0;
  base::Status verdict = InitRequest("mv_init").examine(report.sources, report.settings);
  std::string place;
  if (reach && !report.settings.master.empty()) {
    verdict = {};
    place = fmt::format("examines the master at {} without joining its cluster", report.settings.master);
  } else if (reach && verdict.ok()) {
    verdict = base::error(MV_EINVAL, "no master is set: set POLYVERSO_MASTER=host:port");
  }
  append(report, judge_settings(report.sources, report.settings, verdict, place));
  examine_machine(report);
  if (verdict.ok() && !reach) append(report, doctor::examine_addresses(report.settings));
  // Not of a running node, whose program may fork later: a child can't use devices that its parent has used.
  if (!reach) append(report, doctor::examine_devices());
  if (verdict.ok()) examine_way_to_master(report, reach);
  append(report, doctor::examine_build());
  return report;
}

base::Result<DoctorReport> examine_node(const NodeEntry& entry) {
  DoctorReport report;
  report.running = true;
  report.settings = entry.settings;
  report.sources = entry.sources;
  auto peers = entry.node->examine_peers();
  if (!peers.ok()) return peers.status();
  report.peers = std::move(peers).value();
  report.address = entry.node->identity().address;
  append(report, judge_settings(report.sources, report.settings, {}));
  examine_machine(report);
  if (!report.address.empty()) {
    doctor::Findings listening("network");
    listening.ok("listening", fmt::format("peers are told to connect to {}", report.address));
    append(report, std::move(listening));
  }
  if (report.settings.is_named()) append(report, doctor::reach_keeper(report.settings, kPatience));
  append(report, doctor::judge_peers(report.peers));
  append(report, doctor::examine_build());
  return report;
}

base::Result<std::string> tune(State& state, int64_t handle, uint32_t flags) {
  auto pin = find_node(state, "mv_doctor_text", handle);
  if (!pin.ok()) return pin.status();
  const auto tuning = (*pin.value())->node->tune();
  if (!tuning.ok()) return base::error(tuning.status().code(), "mv_doctor_text: {}", tuning.status().text());
  return (flags & MV_JSON) != 0 ? tuning_as_json(tuning.value()) : tuning.value().setting();
}

/// `handle` 0: no node is running.
base::Result<std::string> examine(State& state, int64_t handle, uint32_t flags) {
  if ((flags & MV_TUNE) != 0) return tune(state, handle, flags);
  const auto write = [&](const DoctorReport& report) {
    return (flags & MV_JSON) != 0 ? report.as_json() : report.as_text();
  };
  if (handle == 0) return write(examine_start(flags));
  auto pin = find_node(state, "mv_doctor_text", handle);
  if (!pin.ok()) return pin.status();
  const auto report = examine_node(**pin.value());
  if (!report.ok()) return report.status();
  return write(report.value());
}

}  // namespace
}  // namespace mv::capi

mv_status mv_doctor_text(mv_node node, uint32_t flags, char* text, uint64_t capacity, uint64_t* length) {
  using namespace mv::capi;
  return boundary("mv_doctor_text", [&](State& state) -> mv::base::Status {
    if (auto status = check_text_out("mv_doctor_text", text, capacity, length); !status.ok()) return status;
    if ((flags & ~kFlags) != 0)
      return mv::base::error(MV_EINVAL, "mv_doctor_text: flags {:#x}: only MV_JSON, MV_REACH and MV_TUNE are allowed", flags);
    const int64_t handle = node != 0 ? node : state.default_node.load(std::memory_order_acquire);
    return answer(fmt::format("mv_doctor_text {} {}", handle, flags), text, capacity, length, [&] { return examine(state, handle, flags); });
  });
}
