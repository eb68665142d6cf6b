#include "api/distlearn/settings.hpp"

#include "base/setting_text.hpp"

namespace mv::distlearn {
namespace {

using base::SettingInfo;
using base::SettingType;

constexpr SettingInfo kInnerSteps = {.key = "inner_steps", .type = SettingType::kInteger, .help = "steps between exchanges of all parameters", .least = 1};
constexpr SettingInfo kOuterRate = {.key = "outer_rate", .type = SettingType::kReal, .help = "learning rate of the outer step"};
constexpr SettingInfo kOuterMomentum = {.key = "outer_momentum", .type = SettingType::kReal, .help = "Nesterov momentum of the outer step"};
constexpr SettingInfo kFragments = {.key = "fragments", .type = SettingType::kInteger, .help = "number of fragments, exchanged at different times", .least = 1};
constexpr SettingInfo kOverlap = {.key = "overlap", .type = SettingType::kInteger, .help = "training steps during an exchange"};
constexpr SettingInfo kMixing = {.key = "mixing", .type = SettingType::kReal, .help = "weight of the training during an exchange"};
constexpr const SettingInfo* kKnown[] = {&kInnerSteps, &kOuterRate, &kOuterMomentum, &kFragments, &kOverlap, &kMixing};

}  // namespace

base::Result<LocalSettings> parse_local_settings(std::string_view text) {
  base::SaidSettings said(kKnown);
  if (auto status = said.say_text(text, "settings"); !status.ok()) return status;
  LocalSettings settings;
  const auto whole = [&](size_t index, int64_t& value) {
    if (const auto* spoken = said.find(index)) value = spoken->value.number;
  };
  const auto real = [&](size_t index, double& value) {
    if (const auto* spoken = said.find(index)) value = base::real_of(spoken->value.number);
  };
  whole(0, settings.inner_steps);
  real(1, settings.outer_rate);
  real(2, settings.outer_momentum);
  whole(3, settings.fragments);
  whole(4, settings.overlap);
  real(5, settings.mixing);
  if (auto status = LocalSgd::check(settings); !status.ok()) return status;
  return settings;
}

}  // namespace mv::distlearn
