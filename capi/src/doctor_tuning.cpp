// What messages cost, as JSON. docs/operations.md has the fields: they are only ever added to.

#include <nlohmann/json.hpp>

#include "doctor_report.hpp"
#include "engine/collective/cost_text.hpp"
#include "node/doctor/peers.hpp"
#include "node/doctor/tuning.hpp"

namespace mv::capi {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCostsSchema = 1;
const collective::Costs kDefault;

Json write_road(const doctor::RoadTuning& road) {
  const collective::RoadCost& cost = road.fit.cost;
  const collective::RoadCost& before = kDefault.of(road.road);
  return {{"road", doctor::name_of(road.road)},
          {"workers", road.workers},
          {"alpha_us", cost.alpha * 1e6},
          {"beta_ns", cost.beta * 1e9},
          {"error", road.fit.error},
          {"default_alpha_us", before.alpha * 1e6},
          {"default_beta_ns", before.beta * 1e9},
          {"why_not_shm", road.why_not_shm},
          {"cost", collective::write_cost(road.road, cost)}};
}

Json write_trial(const doctor::Trial& trial, base::RoadKind road) {
  return {{"road", doctor::name_of(road)},
          {"bytes", trial.bytes},
          {"algorithm", collective::algorithm_name(trial.choice.algorithm)},
          {"by_host", trial.choice.by_host},
          {"predicted_us", trial.choice.seconds * 1e6},
          {"measured_us", trial.seconds * 1e6}};
}

}  // namespace

std::string tuning_as_json(const doctor::Tuning& tuning) {
  Json json = {{"schema", kCostsSchema},
               {"version", mv_version_text()},
               {"workers", tuning.workers},
               {"hosts", tuning.hosts},
               {"collective_costs", tuning.setting()},
               {"gamma_ns", tuning.basis.costs.gamma * 1e9},
               {"default_gamma_ns", kDefault.gamma * 1e9}};
  Json& roads = json["roads"] = Json::array();
  for (const doctor::RoadTuning& road : tuning.roads) roads.push_back(write_road(road));
  Json& trials = json["trials"] = Json::array();
  for (const doctor::Trial& trial : tuning.trials) trials.push_back(write_trial(trial, tuning.between));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mv::capi
