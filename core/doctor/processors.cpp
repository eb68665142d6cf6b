#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/processors.hpp"
#include "base/system.hpp"
#include "doctor/machine.hpp"

namespace mv::doctor {

namespace {

/// Processor time that the control group grants, in processors; nullopt if it sets no limit.
std::optional<double> granted_processors() {
  if (const auto limit = base::read_control_group("cpu", "cpu.max")) {  // "max 100000", "150000 100000"
    const auto quota = base::leading_number(*limit);
    const size_t blank = limit->find(' ');
    const auto period = blank == std::string::npos ? std::nullopt : base::leading_number(limit->substr(blank + 1));
    if (!quota || !period || *period == 0) return std::nullopt;
    return static_cast<double>(*quota) / static_cast<double>(*period);
  }
  const auto quota = base::read_control_group("cpu", "cpu.cfs_quota_us");  // -1: none
  const auto period = base::read_control_group("cpu", "cpu.cfs_period_us");
  if (!quota || !period || !base::leading_number(*quota) || base::leading_number(*period).value_or(0) == 0) return std::nullopt;
  return static_cast<double>(*base::leading_number(*quota)) / static_cast<double>(*base::leading_number(*period));
}

/// The number of runnable threads on the whole machine; 0 if the kernel does not report it.
uint64_t runnable_threads() {
  const auto text = base::read_text("/proc/loadavg");  // "0.10 0.20 0.30 2/345 6789"
  const size_t slash = text ? text->find('/') : std::string::npos;
  const size_t blank = slash == std::string::npos ? slash : text->rfind(' ', slash);
  return blank == std::string::npos ? 0 : base::leading_number(text->substr(blank + 1)).value_or(0);
}

}  // namespace

Findings examine_processors(const runtime::Settings& settings) {
  Findings findings("processors");
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const int allowed = base::allowed_processors();
  const auto granted = granted_processors();
  double usable = static_cast<double>(allowed > 0 ? allowed : online);
  std::string text = fmt::format("{} on this machine, {} for this process", online, usable);
  if (granted && *granted < usable) {
    usable = *granted;
    findings.note("processors", fmt::format("{}, but its control group is limited to the time of {:.3g}", text, usable),
                  "give the container more processor time if processes wait too long for each other");
  } else {
    findings.ok("processors", std::move(text));
  }

  const uint64_t busy = runnable_threads();
  if (settings.spin_us == 0) {
    findings.note("spin", "off (spin_us=0): waiters sleep at once, and wake about 50 us late",
                  "leave spin_us unset for low latency");
  } else if (granted && *granted <= usable && usable < 2) {
    findings.note("spin",
                  fmt::format("up to {} us, which uses up the control group's time of {:.3g} processors", settings.spin_us, usable),
                  "set spin_us=0 (POLYVERSO_SPIN_US) if the group often runs out of processor time");
  } else if (busy > static_cast<uint64_t>(online)) {
    findings.note("spin",
                  fmt::format("up to {} us, and waiters yield: {} threads are ready to run on {} processors", settings.spin_us,
                              busy, online),
                  "for low latency, run fewer processes on this machine, and no other programs");
  } else {
    findings.ok("spin", fmt::format("waiters spin for up to {} us before they sleep", settings.spin_us));
  }
  return findings;
}

}  // namespace mv::doctor
