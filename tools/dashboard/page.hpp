#pragma once
// The files of the dashboard's page. embed.cmake generates the definition from tools/dashboard/page and Debian's Chart.js.

#include <string_view>
#include <vector>

namespace mv::tools {

struct PageFile {
  std::string_view name, text;  ///< "app.js", without a slash; its content
};

/// chart.js is missing if libjs-chart.js was not installed at build time.
const std::vector<PageFile>& page_files();

}  // namespace mv::tools
