#include "transport/fabric/mpi.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/module_file.hpp"

namespace mv::transport {

namespace {

constexpr MpiFamily kFamilies[] = {MpiFamily::kOpenMpi, MpiFamily::kMpich};

/// By the file's name: Open MPI's soname is libmpi.so.40, or another number from 12 on only in versions before 3; MPICH's is
/// libmpi.so.12, which Debian renames to libmpich.so.12.
std::optional<MpiFamily> family_of_library(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("libmpich.so") || name.starts_with("libmpi.so.12")) return MpiFamily::kMpich;
  if (name.starts_with("libmpi.so")) return MpiFamily::kOpenMpi;
  return std::nullopt;
}

int look_at_library(dl_phdr_info* info, size_t, void* to) {
  if (const auto family = family_of_library(info->dlpi_name != nullptr ? info->dlpi_name : ""))
    static_cast<std::vector<std::pair<MpiFamily, std::string>>*>(to)->emplace_back(*family, info->dlpi_name);
  return 0;
}

bool is_initialized(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  int flag = 0;
  if (auto* const ask = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Initialized"))) ask(&flag);
  dlclose(library);
  return flag != 0;
}

/// The variable by which a launcher tells that it has started this process, and whose it is.
std::pair<std::optional<MpiFamily>, const char*> launcher(const MpiSurroundings& around) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"})
    if (around.variable(name) != nullptr) return {MpiFamily::kOpenMpi, name};
  for (const char* name : {"PMI_RANK", "PMI_SIZE", "PMI_ID", "PMI_FD"})
    if (around.variable(name) != nullptr) return {MpiFamily::kMpich, name};
  return {};
}

base::Status missing(MpiFamily family, const std::string& reason, const base::Status& why) {
  return base::error(MV_ENOSYS,
                     "transport=mpi needs the plug-in for {} ({}): install the package libpolyverso-mpi-{}, or build with {} installed; or leave transport "
                     "(POLYVERSO_TRANSPORT) unset ({})",
                     name_of(family), reason, family == MpiFamily::kOpenMpi ? "openmpi" : "mpich",
                     family == MpiFamily::kOpenMpi ? "libopenmpi-dev" : "libmpich-dev", why.text());
}

base::Result<MpiPlugin> check(void* entry, const std::string& file, const std::string& reason) {
  const auto plugin = base::check_plugin(reinterpret_cast<mv_fabric_entry>(entry)(MV_FABRIC_INTERFACE), MV_FABRIC_INTERFACE, file);
  if (!plugin.ok()) return plugin.status();
  if (std::string_view(plugin.value()->name) != "mpi")
    return base::error(MV_ENOSYS, "{} is a plug-in for {}, not for MPI: set {} to libpolyverso-mpi-openmpi.so or libpolyverso-mpi-mpich.so, or leave it unset", file,
                       plugin.value()->name, kMpiPluginVariable);
  return MpiPlugin{plugin.value(), reason};
}

base::Result<MpiPlugin> load() {
  const auto choice = choose_mpi();
  if (!choice.ok()) return choice.status();
  if (const char* const path = std::getenv(kMpiPluginVariable); path != nullptr && *path != '\0') {
    const auto entry = base::load_from_plugin(path, "", MV_FABRIC_ENTRY, "a fabric");
    if (!entry.ok()) return entry.status();
    return check(entry.value(), path, fmt::format("{}={}", kMpiPluginVariable, path));
  }
  base::Status first;
  for (const MpiFamily family : kFamilies) {
    if (choice.value().family && family != *choice.value().family) continue;
    const auto entry = base::load_from_module(plugin_file(family), MV_FABRIC_ENTRY, "transport=mpi");
    if (entry.ok()) return check(entry.value(), plugin_file(family), choice.value().reason);
    if (first.ok()) first = missing(family, choice.value().reason, entry.status());
  }
  return first;
}

}  // namespace

const char* name_of(MpiFamily family) { return family == MpiFamily::kOpenMpi ? "Open MPI" : "MPICH"; }
const char* plugin_file(MpiFamily family) { return family == MpiFamily::kOpenMpi ? "libpolyverso-mpi-openmpi.so" : "libpolyverso-mpi-mpich.so"; }

MpiSurroundings MpiSurroundings::here() {
  std::vector<std::pair<MpiFamily, std::string>> libraries;
  dl_iterate_phdr(look_at_library, &libraries);
  MpiSurroundings around;
  around.variable = [](const char* variable) -> const char* { return std::getenv(variable); };
  for (const auto& [family, file] : libraries) {
    if (!around.loaded) around.loaded = family;
    if (is_initialized(file)) around.initialized = family;
  }
  return around;
}

base::Result<MpiChoice> choose_mpi(const MpiSurroundings& around) {
  const auto [launched, variable] = launcher(around);
  if (around.initialized && launched && *around.initialized != *launched)
    return base::error(MV_EDISAGREE,
                       "this program uses {}, but {} is set, so {}'s launcher has started it: its processes do not know each other. Start it with {}'s "
                       "mpiexec, or build the program (mpi4py) with {}",
                       name_of(*around.initialized), variable, name_of(*launched), name_of(*around.initialized), name_of(*launched));
  if (around.initialized) return MpiChoice{around.initialized, fmt::format("the program has initialized {}", name_of(*around.initialized))};
  if (launched) return MpiChoice{launched, fmt::format("{}'s launcher has started this process: {} is set", name_of(*launched), variable)};
  if (around.loaded) return MpiChoice{around.loaded, fmt::format("the process has loaded {}", name_of(*around.loaded))};
  return MpiChoice{std::nullopt, "no launcher of MPI has started this process"};
}

base::Result<MpiPlugin> mpi_plugin() {
  static const base::Result<MpiPlugin> kPlugin = load();
  return kPlugin;
}

}  // namespace mv::transport
