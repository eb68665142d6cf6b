#include "launcher.hpp"

#include <algorithm>

#include "launcher_readers.hpp"

namespace mv::capi {
namespace {

/// From the inside out: if variables of several launchers are set, the first one started this process.
enum LauncherKind { kDmlc, kTorchrun, kOpenMpi, kPmi, kSlurm, kLauncherKinds };
constexpr const char* kWords[kLauncherKinds] = {"dmlc", "torchrun", "openmpi", "pmi", "slurm"};

/// Rank variables of unsupported launchers. Each of their processes would become a cluster of one.
constexpr const char* kStrangers[] = {"PMIX_RANK",      "MV2_COMM_WORLD_RANK", "PALS_RANKID",
                                      "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",  "ALPS_APP_PE"};

/// Whether one launcher's processes are known to be started by the other's.
bool is_inside(LauncherKind inner, LauncherKind outer, const Variables& variables) {
  if (inner == kDmlc) return outer != kTorchrun;  // its trackers start processes through mpirun, srun and ssh
  if (inner == kTorchrun) return variables.find("TORCHELASTIC_RUN_ID").has_value();  // its agents are, one on each
                                                                                     // machine
  return outer == kSlurm;  // mpirun and mpiexec start their daemons through srun
}

/// The first value that both set and that differs: the two variables.
std::optional<std::pair<std::string, std::string>> difference(const Assignment& a, const Assignment& b) {
  for (auto part : {&Assignment::nodes, &Assignment::rank})
    if (a.*part && b.*part && (a.*part)->value != (b.*part)->value) return {{(a.*part)->from, (b.*part)->from}};
  return std::nullopt;
}

/// Whether the others can find rank 0.
bool can_meet(const Assignment& place) { return place.master.has_value() || place.rendezvous.has_value(); }

Reading read(LauncherKind kind, const Variables& variables, const MakerOfSocket& maker, std::vector<std::string>& notes) {
  switch (kind) {
    case kDmlc:
      return read_dmlc(variables);
    case kTorchrun:
      return read_torchrun(variables);
    case kOpenMpi:
      return read_openmpi(variables);
    case kPmi:
      return read_pmi(variables, maker);
    default:
      return read_slurm(variables, notes);
  }
}

base::Result<Detected> detect_one(LauncherKind kind, const Variables& variables, const MakerOfSocket& maker) {
  Detected detected;
  auto reading = read(kind, variables, maker, detected.notes);
  if (!reading.ok()) return reading.status();
  if (!reading.value())
    return base::error(MV_EINVAL,
                       "launcher={}, but none of its variables that give this process its rank is set",
                       kWords[kind]);
  detected.seen.push_back(reading.value()->launcher);
  detected.place = std::move(reading).value();
  return detected;
}

}  // namespace

base::Result<Detected> detect_launcher(std::string_view wish, const Environment& environment, const MakerOfSocket& maker) {
  const Variables variables(environment);
  if (wish == "none") return Detected();
  for (int kind = 0; kind < kLauncherKinds; ++kind)
    if (wish == kWords[kind]) return detect_one(static_cast<LauncherKind>(kind), variables, maker);

  Detected detected;
  LauncherKind inner{};
  for (int kind = 0; kind < kLauncherKinds; ++kind) {
    auto reading = read(static_cast<LauncherKind>(kind), variables, maker, detected.notes);
    if (!reading.ok()) return reading.status();
    if (!reading.value()) continue;
    const Assignment& place = *reading.value();
    detected.seen.push_back(place.launcher);
    if (!detected.place) {
      inner = static_cast<LauncherKind>(kind);
      detected.place = place;
      continue;
    }
    const auto differs = difference(*detected.place, place);
    if (!differs && !can_meet(*detected.place) && can_meet(place)) {  // `srun --mpi=pmi2` is one launcher with the variables of two
      inner = static_cast<LauncherKind>(kind);
      detected.place = place;
      std::rotate(detected.seen.begin(), detected.seen.end() - 1, detected.seen.end());
      continue;
    }
    if (!differs || is_inside(inner, static_cast<LauncherKind>(kind), variables)) continue;
    return base::error(
        MV_EDISAGREE,
        "{} ({}) and {} ({}) disagree on this process's rank or cluster: choose one with POLYVERSO_LAUNCHER={} or {}",
        differs->first, detected.place->launcher, differs->second, place.launcher, kWords[inner], kWords[kind]);
  }
  if (detected.place) detected.notes.clear();  // mpirun in an allocation: Slurm's note is about processes that nobody started
  return detected;
}

base::Status refuse_unknown_launchers(const Environment& environment) {
  const Variables variables(environment);
  for (const char* name : kStrangers) {
    const auto rank = variables.find(name);
    if (!rank) continue;
    return base::error(MV_EINVAL,
                       "{} comes from a launcher that is not supported directly: set POLYVERSO_NODES, POLYVERSO_RANK and "
                       "POLYVERSO_MASTER=host:port "
                       "for its processes, or POLYVERSO_LAUNCHER=none for a cluster of one",
                       rank->from);
  }
  return {};
}

}  // namespace mv::capi
