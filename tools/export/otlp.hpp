#pragma once
// Metrics in OpenTelemetry's form.

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace mv::tools {

/// One `resourceMetrics` entry of an OTLP/HTTP request in JSON (opentelemetry-proto, metrics/v1): the metrics of one
/// process, from what it serves in Prometheus's text format. Counters become cumulative monotonic sums, histograms keep
/// their limits; names and labels stay. The resource's attributes are service.name, service.instance.id (the rank) and
/// service.version. Lines that aren't understood are left out.
/// @param now  nanoseconds since 1970; a counter's start is `now` less the process's polyverso_uptime_seconds
nlohmann::json resource_metrics(std::string_view exposition, int64_t now);

}  // namespace mv::tools
