#include "api/group/tuning.hpp"

#include <fmt/format.h>

#include "engine/collective/cost_text.hpp"

namespace mv::api {

std::string Tuning::setting() const {
  std::string line;
  for (const RoadTuning& road : roads) line += collective::write_cost(road.road, road.fit.cost) + " ";
  return line + fmt::format("reduce={}", basis.costs.gamma);
}

}  // namespace mv::api
