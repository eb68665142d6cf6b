#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/system.hpp"
#include "device/device.hpp"
#include "doctor/machine.hpp"

namespace mv::doctor {

namespace {

/// "PCI 0000:3b:00.0, 16 lanes of 32.0 GT/s PCIe"; without lanes if the kernel does not tell them.
std::string bus_text(std::string bus) {
  if (bus.empty()) return "no PCI address";
  std::ranges::transform(bus, bus.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const std::string folder = "/sys/bus/pci/devices/" + bus + "/";
  const auto width = base::read_text(folder + "current_link_width"), speed = base::read_text(folder + "current_link_speed");
  if (!width || !speed) return "PCI " + bus;
  const auto most = base::read_text(folder + "max_link_width");
  const std::string lanes = most && *most != *width ? fmt::format("{} of {}", *width, *most) : *width;
  return fmt::format("PCI {}, {} lanes of {}", bus, lanes, *speed);
}

/// The devices whose memory this one reaches directly.
std::string peers_text(device::Plugin plugin, int32_t number, int32_t devices) {
  std::string direct;
  for (int32_t peer = 0; peer < devices; ++peer) {
    int32_t reaches = 0;
    if (peer == number || plugin->reaches(number, peer, &reaches) != MV_OK || reaches == 0) continue;
    direct += fmt::format("{}{}:{}", direct.empty() ? "" : ", ", plugin->name, peer);
  }
  if (devices < 2) return "";
  return direct.empty() ? "; copies to other devices go through the host" : "; reaches " + direct + " directly";
}

void examine(Findings& findings, device::Plugin plugin, int32_t number, int32_t devices) {
  const auto opened = device::Device::open(plugin, number);
  const auto found = opened.ok() ? opened.value().describe() : base::Result<mv_device_about>(opened.status());
  const std::string name = fmt::format("{}:{}", plugin->name, number);
  if (!found.ok()) return findings.problem(name, found.status().text(), "see docs/cuda.md; everything but this device works without it");
  const mv_device_about& about = found.value();
  findings.ok(name, fmt::format("{}, sm_{}, {} processors, {} of {} free; {}; driver {}, runtime {}{}", about.name, about.major * 10 + about.minor,
                                about.processors, base::as_bytes(about.unused), base::as_bytes(about.memory), bus_text(about.bus), about.driver, about.runtime,
                                peers_text(plugin, number, devices)));
}

/// The libraries that the plug-in loads when they are first needed: programs may need neither.
void examine_libraries(Findings& findings, device::Plugin plugin) {
  constexpr const char *kProducts = "matrix products", *kAllReduces = "all-reduces";
  mv_device_blas empty{};
  empty.dtype = MV_F32;
  if (plugin->blas(0, nullptr, &empty) == MV_OK)
    findings.ok(kProducts, "the library for them is found");
  else
    findings.note(kProducts, plugin->error(), "install cuBLAS, such as PyPI's nvidia-cublas, and set LD_LIBRARY_PATH to its folder; nothing else needs it");
  char library[128] = "";
  if (plugin->comm_about(library, sizeof library) == MV_OK)
    findings.ok(kAllReduces, fmt::format("between devices, by {}", library));
  else
    findings.note(kAllReduces, plugin->error(),
                  "install NCCL 2.14 or later, such as PyPI's nvidia-nccl-cu13, and set LD_LIBRARY_PATH to its folder; without it all-reduces go through the host");
}

}  // namespace

Findings examine_devices() {
  Findings findings("devices");
  const char* const given = std::getenv(device::kPluginVariable);
  const auto plugin = device::the_plugin();
  int32_t devices = 0;
  base::Status missing;
  if (!plugin.ok()) {
    missing = plugin.status();
  } else if (const mv_status status = plugin.value()->count(&devices); status != MV_OK) {
    missing = base::Status(status, plugin.value()->error());
  }
  if (missing.ok()) {
    for (int32_t number = 0; number < devices; ++number) examine(findings, plugin.value(), number, devices);
    examine_libraries(findings, plugin.value());
  } else if (given != nullptr && *given != '\0') {
    const char* const todo = plugin.ok() ? "the plug-in is found: see \"Load\" in docs/cuda.md, or unset" : "correct or unset";
    findings.problem("plug-in", missing.text(), fmt::format("{} {}: only devices need it", todo, device::kPluginVariable));
  } else {
    findings.ok("plug-in", missing.text());  // most machines need none
  }
  return findings;
}

}  // namespace mv::doctor
