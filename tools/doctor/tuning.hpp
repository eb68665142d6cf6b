#pragma once
// `polyverso doctor --tune`: what messages cost, measured between processes that are there, or that are started for it.

#include "doctor/doctor.hpp"

namespace mv::tools {

/// 0 if all was measured, 1 if not.
int run_tuning(const DoctorOptions& options);

}  // namespace mv::tools
