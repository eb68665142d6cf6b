#pragma once
// `polyverso trace --explain`: where the workers' time goes, in words.

#include <string>

#include <nlohmann/json.hpp>

namespace mv::tools {

/// A few lines: how much of the workers' time is compute, waiting and for whom, transfer and apply, and what to do.
/// A worker's time in which none of its threads is blocked in a call is compute. Of a blocked time, what a gate held or a
/// group's operation waited is a wait, for the worker whose message ended it; what a server spent on this worker's
/// requests is apply; the rest is transfer.
/// @param events  of a merged trace, times in microseconds on one clock
std::string explain(const nlohmann::json& events);

}  // namespace mv::tools
