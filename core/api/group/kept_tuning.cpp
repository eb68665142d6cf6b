#include "api/group/kept_tuning.hpp"

#include <fmt/core.h>

#include "runtime/tuning_files.hpp"

namespace mv::api {

namespace {

constexpr const char *kTuneAuto = "auto", *kTuneTrial = "trial", *kTuneFixed = "fixed";

runtime::TuningFile file_for(size_t ranks) { return runtime::TuningFile(fmt::format("shm-{}", ranks)); }

}  // namespace

base::Status check_tuning(const std::string& setting) {
  if (setting == kTuneAuto || setting == kTuneTrial || setting == kTuneFixed || intranode::algorithm_named(setting)) return {};
  return base::error(MV_EINVAL, "tuning=\"{}\" is none of auto, trial, fixed, nor an algorithm of all-reduces: {}", setting,
                     intranode::algorithm_names());
}

intranode::Tuning tuning_for(const std::string& setting, size_t ranks) {
  intranode::Tuning tuning;
  if (const auto algorithm = intranode::algorithm_named(setting)) tuning.named = static_cast<uint8_t>(*algorithm);
  if (setting == kTuneFixed) tuning.mode = intranode::Tuning::kFixed;
  if (setting != kTuneAuto) return tuning;
  const runtime::TuningEntries kept = file_for(ranks).read();
  for (size_t index = 0; index < intranode::SizeClass::kCount && !kept.empty(); ++index) {
    const auto found = kept.find(intranode::SizeClass::at(index).name());
    const auto algorithm = found != kept.end() ? intranode::algorithm_named(found->second) : std::nullopt;
    if (algorithm) tuning.kept[index] = static_cast<uint8_t>(*algorithm);
  }
  return tuning;
}

void keep_tuning(const std::string& setting, size_t ranks, const std::vector<intranode::Decision>& decisions) {
  if (setting != kTuneAuto && setting != kTuneTrial) return;
  runtime::TuningEntries found;
  for (const intranode::Decision& decision : decisions)
    if (decision.why == intranode::Decision::Why::kTried) found.emplace(decision.of.name(), traits(decision.algorithm).name);
  file_for(ranks).add(found);
}

}  // namespace mv::api
