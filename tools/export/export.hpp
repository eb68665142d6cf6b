#pragma once
// `polyverso export`: sends a cluster's metrics to an OpenTelemetry collector.

#include <string>
#include <vector>

#include "target.hpp"

namespace mv::tools {

struct ExportOptions {
  ClusterChoice cluster;
  std::vector<std::string> http;     ///< where members serve their metrics; empty: the cluster is asked
  std::string otlp;                  ///< the collector's URL; /v1/metrics is added where it has no path
  std::vector<std::string> headers;  ///< "Name: value", for the collector
  double interval = 10;              ///< seconds between two requests
  bool once = false;                 ///< one request, then the end
};

/// Reads the metrics of all processes and sends them, again and again, until a signal or until no process answers any more.
/// A request that fails is told of on standard error, and the next one has the whole state. An exit status.
int export_metrics(const ExportOptions& options);

}  // namespace mv::tools
