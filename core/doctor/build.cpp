#include <dlfcn.h>
#include <hwy/targets.h>

#include <filesystem>
#include <system_error>

#include "base/version.hpp"
#include "doctor/machine.hpp"

namespace mv::doctor {

namespace {

/// The file from which this code was loaded.
std::string library_file() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&examine_build), &info) == 0 || info.dli_fname == nullptr)
    return "an unknown file";
  std::error_code failure;
  const auto whole = std::filesystem::canonical(info.dli_fname, failure);
  return failure ? info.dli_fname : whole.string();
}

/// The instruction set whose kernels Highway calls: the best compiled one that the processor supports. Highway gives
/// better instruction sets lower bits.
const char* kernel_target() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#ifdef NDEBUG
constexpr bool kChecked = false;
#else
constexpr bool kChecked = true;
#endif

}  // namespace

Findings examine_build() {
  Findings findings("build");
  findings.ok("library", fmt::format("{}, from {}", base::version_text(), library_file()));
#ifdef __clang__
  const std::string compiler = __VERSION__;
#else
  const std::string compiler = "GCC " __VERSION__;
#endif
  if (kSanitized)
    findings.note("compiler", compiler + ", with a sanitizer: many times slower", "use a release build except for tests");
  else
    findings.ok("compiler", compiler + (kChecked ? ", with assertions" : ", without assertions"));
  findings.ok("kernels", fmt::format("{} on this processor", kernel_target()));
  return findings;
}

}  // namespace mv::doctor
