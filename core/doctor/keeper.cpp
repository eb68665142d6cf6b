#include "doctor/keeper.hpp"

#include "runtime/keeper/rendezvous.hpp"

namespace mv::doctor {

namespace {

const char* remedy(mv_status status) {
  switch (status) {
    case MV_EUNREACHABLE:
      return "start it, or correct keeper (POLYVERSO_KEEPER); check from this machine that no firewall drops packets to its port";
    case MV_EAUTH:
      return "set keeper_auth (POLYVERSO_KEEPER_AUTH) to USER:PASSWORD of a user that may read and write /polyverso/";
    case MV_ENOSYS:
      return "install libpolyverso-http.so beside the library";
    default:
      return "correct keeper (POLYVERSO_KEEPER)";
  }
}

}  // namespace

Findings reach_keeper(const runtime::Settings& settings, base::Nanos patience) {
  Findings findings("keeper");
  const auto address = runtime::keeper::parse_address(settings.keeper);
  const auto found = runtime::keeper::look_up(settings.keeper, settings.keeper_auth, patience);
  if (!found.ok()) {
    findings.problem("store", found.status().text(), remedy(found.status().code()));
    return findings;
  }
  findings.ok("store", address.value().where() + " answers");
  const auto& [rank_0, lease_left, view_revision] = found.value();
  const std::string lease = lease_left ? fmt::format(", by a lease that lasts {} s more", *lease_left) : "";
  const std::string view = view_revision != 0 ? fmt::format("; views: revision {}", view_revision) : "";
  if (rank_0)
    findings.ok("cluster", fmt::format("rank 0 of \"{}\" is pid {} on {}, at {}{}{}", address.value().name, rank_0->pid, rank_0->host,
                                       rank_0->address, lease, view));
  else
    findings.ok("cluster", fmt::format("\"{}\" has no rank 0 now: the first process becomes it{}", address.value().name, view));
  return findings;
}

}  // namespace mv::doctor
