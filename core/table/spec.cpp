#include "table/spec.hpp"

#include <fmt/format.h>

namespace mv::table {

std::string Spec::describe() const {
  const char* type = dtype == MV_F32 ? "f32" : "f64";
  const char* finite = rejects_nonfinite() ? ", finite only" : "";
  if (kind == MV_ARRAY) return fmt::format("an array of {} {}{}", rows, type, finite);
  return fmt::format("a {} x {} matrix of {}{}", rows, cols, type, finite);
}

}  // namespace mv::table
