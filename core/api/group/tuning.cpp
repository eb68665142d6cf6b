#include "api/group/tuning.hpp"

#include <fmt/core.h>

#include "engine/collective/cost_text.hpp"

namespace mv::api {

std::string Tuning::setting() const {
  std::string line;
  for (const TransportTuning& transport : transports) line += collective::write_cost(transport.transport, transport.fit.cost) + " ";
  return line + fmt::format("reduce={}", basis.costs.gamma);
}

}  // namespace mv::api
