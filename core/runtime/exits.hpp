#pragma once
// The file in which `polyverso run` reports the processes of its run that have ended. A process that waits for the
// cluster to form reads this file, because a process that ended before it joined had no connection that could break.

#include <optional>
#include <string>
#include <string_view>

namespace mv::runtime {

inline constexpr std::string_view kExitsGreeting = "polyverso exits 1\n";

/// The first report: "worker 1 (pid 123) exited with status 1". Nothing if there is none yet, or no such file.
std::optional<std::string> first_exit(const std::string& path);

}  // namespace mv::runtime
