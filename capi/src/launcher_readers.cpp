// The readers of Open MPI's mpirun, torchrun, and process managers that use PMI.

#include "launcher_readers.hpp"

#include <sys/socket.h>

#include <fstream>
#include <limits>

namespace mv::capi {
namespace {

constexpr const char* kGiveMaster =
    "set POLYVERSO_MASTER=host:port for all of them, with rank 0's host and a free port on it (and "
    "POLYVERSO_SECRET)";

std::string several_machines(const char* launcher) {
  return fmt::format("the processes of {} are on several machines, and rank 0's address is unknown: {}",
                     launcher, kGiveMaster);
}

/// The last part of a path.
std::string_view last_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

base::Status lacks(const char* launcher, const std::string& given, const char* lacking) {
  return base::error(MV_EINVAL,
                     "{} is set, but {} is not: this looks like {}, but is only a part of what it gives a process; set the rest, or "
                     "POLYVERSO_NODES, POLYVERSO_RANK and POLYVERSO_MASTER, or POLYVERSO_LAUNCHER=none for a cluster of one",
                     given, lacking, launcher);
}

/// The job's name. MPICH's Hydra sets none: it gives each process one end of a pair of sockets, PMI_FD. What speaks PMI
/// through it later, such as an MPI library, has to begin and end the conversation, so nothing is asked there: the
/// kernel knows which process made the pair.
std::optional<Found> name_of_pmi_job(const Variables& variables, const MakerOfSocket& maker) {
  if (auto name = variables.find({"PMI_PORT", "PMI_JOBID"})) return name;
  const auto connection = variables.find("PMI_FD");
  const auto descriptor = number_of(connection);
  if (!descriptor || *descriptor < 0 || *descriptor > std::numeric_limits<int>::max()) return std::nullopt;
  const auto manager = maker(static_cast<int>(*descriptor));
  if (!manager) return std::nullopt;
  return Found{*manager, connection->from};
}

}  // namespace

/// The start time distinguishes managers of two process namespaces, which may have the same number.
std::optional<std::string> maker_of_socket(int descriptor) {
  ucred maker{};
  socklen_t size = sizeof maker;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &maker, &size) != 0 || maker.pid <= 0) return std::nullopt;
  std::ifstream file(fmt::format("/proc/{}/stat", maker.pid));
  std::string word;
  if (!std::getline(file, word, '\0')) return std::nullopt;
  // "NUMBER (NAME) STATE ...", where a name may contain anything; the state is the 3rd field, and the start time the 22nd.
  const size_t name_end = word.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  size_t begin = name_end + 2;
  for (int field = 3; field < 22; ++field) {
    begin = word.find(' ', begin);
    if (begin == std::string::npos) return std::nullopt;
    ++begin;
  }
  return fmt::format("{}.{}", maker.pid, word.substr(begin, word.find(' ', begin) - begin));
}

/// All ranks of a job share the name and directory of the job, which contain mpirun's process id.
Reading read_openmpi(const Variables& variables) {
  Assignment place;
  place.launcher = "Open MPI";
  place.rank = variables.find("OMPI_COMM_WORLD_RANK");
  place.nodes = variables.find("OMPI_COMM_WORLD_SIZE");
  if (!place.rank && !place.nodes) return std::optional<Assignment>();
  if (!place.rank) return lacks("Open MPI", place.nodes->from, "OMPI_COMM_WORLD_RANK");
  if (!place.nodes) return lacks("Open MPI", place.rank->from, "OMPI_COMM_WORLD_SIZE");

  const auto local = number_of(variables.find("OMPI_COMM_WORLD_LOCAL_SIZE"));
  const auto job = variables.find({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const auto directory = variables.find({"PMIX_SERVER_TMPDIR", "OMPI_MCA_orte_jobfam_session_dir"});
  if (local != number_of(place.nodes)) {
    place.missing = several_machines("mpirun");
  } else if (!job || !directory) {
    place.missing = fmt::format(
        "mpirun has not set its job's name (PMIX_NAMESPACE, PMIX_SERVER_TMPDIR), by which its processes find each other: {}",
        kGiveMaster);
  } else {
    place.rendezvous = Found{fmt::format("openmpi.{}.{}", job->value, last_name(directory->value)), job->from};
  }
  return std::optional(place);
}

/// MASTER_PORT belongs to torch.distributed's own store, so the master's port is the next one.
Reading read_torchrun(const Variables& variables) {
  Assignment place;
  place.launcher = "torchrun";
  place.rank = variables.find("RANK");
  place.nodes = variables.find("WORLD_SIZE");
  const auto host = variables.find("MASTER_ADDR"), port = variables.find("MASTER_PORT");
  if (!place.nodes) {
    if (place.rank && host) return lacks("torchrun", place.rank->from, "WORLD_SIZE");
    return std::optional<Assignment>();  // other programs may set RANK, too
  }
  if (!place.rank) {
    if (number_of(place.nodes) == 1) return std::optional<Assignment>();
    return lacks("torchrun", place.nodes->from, "RANK");
  }
  if (!host || !port) {
    place.missing =
        fmt::format("MASTER_ADDR and MASTER_PORT, which torchrun sets, are not both set: {}", kGiveMaster);
    return std::optional(place);
  }
  const auto number = number_of(port);
  if (!number || *number < 1 || *number > 65'535)
    return base::error(MV_EINVAL, "{} is not a port in 1 .. 65535", port->from);
  const auto local = number_of(variables.find("LOCAL_WORLD_SIZE"));
  if (local == number_of(place.nodes)) {
    const auto run = variables.find("TORCHELASTIC_RUN_ID"), restart = variables.find("TORCHELASTIC_RESTART_COUNT");
    place.rendezvous =
        Found{fmt::format("torchrun.{}.{}.{}", run ? run->value : "", port->value, restart ? restart->value : "0"),
              fmt::format("{} {}", host->from, port->from)};
    return std::optional(place);
  }
  const int64_t next = *number < 65'535 ? *number + 1 : *number - 1;
  const std::string from = fmt::format("{} {}", host->from, port->from);
  place.master = Found{join_address(host->value, next), from};
  if (!is_loopback_host(host->value)) place.bind = any_interface(host->value, from);
  return std::optional(place);
}

Reading read_pmi(const Variables& variables, const MakerOfSocket& maker) {
  Assignment place;
  place.launcher = "PMI";
  place.rank = variables.find("PMI_RANK");
  place.nodes = variables.find("PMI_SIZE");
  // MPICH's mpiexec -pmi-port gives a number and an address to ask for the rest at; without this check, each process would be alone.
  if (const auto number = variables.find("PMI_ID"); number && !place.rank) return lacks("a process manager that speaks PMI", number->from, "PMI_RANK");
  if (!place.rank && !place.nodes) return std::optional<Assignment>();
  if (!place.rank) return lacks("a process manager that speaks PMI", place.nodes->from, "PMI_RANK");
  if (!place.nodes) return lacks("a process manager that speaks PMI", place.rank->from, "PMI_SIZE");
  const auto local = number_of(variables.find("MPI_LOCALNRANKS"));
  const auto job = name_of_pmi_job(variables, maker);
  if (local && local != number_of(place.nodes)) {
    place.missing = several_machines("PMI");
  } else if (!local || !job) {
    place.missing = fmt::format(
        "PMI's variables give ranks, but no address and no job name by which the processes find each other: {}",
        kGiveMaster);
  } else {
    place.rendezvous = Found{fmt::format("pmi.{}", job->value), job->from};
  }
  return std::optional(place);
}

}  // namespace mv::capi
