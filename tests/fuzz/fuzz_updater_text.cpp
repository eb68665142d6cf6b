// The texts of updaters, optimizers and costs: any input is an error, or a usable specification whose text form round-trips.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/collective/cost_text.hpp"
#include "shard/updater/updater.hpp"

namespace {

using namespace mv;

void check(bool holds) {
  if (!holds) std::abort();
}

void try_updater(const std::string& text) {
  const auto spec = shard::parse_updater(text);
  if (!spec.ok()) return check(!spec.status().text().empty());
  const auto again = shard::parse_updater(shard::to_text(spec.value()));
  check(again.ok() && again.value() == spec.value());
  for (const mv_dtype dtype : {MV_F32, MV_F64, MV_I64, MV_U8, MV_BF16}) {
    const auto wrong = shard::check_updater(spec.value(), dtype);
    check(wrong.ok() == wrong.text().empty());
    if (wrong.ok()) check(shard::make_updater(spec.value(), dtype == MV_BF16 ? MV_F32 : dtype) != nullptr);
  }
}

void try_costs(const std::string& text) {
  const auto costs = collective::read_costs(text);
  if (!costs.ok()) return check(!costs.status().text().empty());
  const std::string written = collective::write_costs(costs.value());
  const auto again = collective::read_costs(written);
  check(again.ok() && collective::write_costs(again.value()) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_updater(text);
  try_costs(text);
  return 0;
}
