#include "doctor_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "node/doctor/peers.hpp"

namespace mv::capi {
namespace {

using doctor::Finding;
using doctor::Verdict;
using Json = nlohmann::ordered_json;

/// Of the JSON's form; raised only if a field changes its meaning.
constexpr int kSchema = 1;

const char* name_of(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kNote ? "note" : "problem";
}

const char* name_of(SettingUse::Source source) {
  switch (source) {
    case SettingUse::Source::kExplicit:
      return "explicit";
    case SettingUse::Source::kEnvironment:
      return "environment";
    case SettingUse::Source::kLauncher:
      return "launcher";
    case SettingUse::Source::kDefault:
      break;
  }
  return "default";
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

Json write_settings(const std::vector<SettingUse>& settings) {
  Json all = Json::array();
  for (const SettingUse& use : settings)
    all.push_back({{"name", use.key},
                   {"value", use.value},
                   {"source", name_of(use.source)},
                   {"from", use.from},
                   {"unused", use.unused}});
  return all;
}

Json write_peers(const std::vector<node::PeerReport>& peers) {
  Json all = Json::array();
  for (const node::PeerReport& peer : peers) {
    Json one = {{"rank", peer.rank},
                {"role", doctor::name_of_role(peer.role)},
                {"host", peer.host},
                {"pid", peer.pid},
                {"address", peer.address},
                {"state", doctor::name_of(peer.state)},
                {"needed", peer.needed},
                {"road", doctor::name_of(peer.road)},
                {"why_not_shm", doctor::why_not_shm(peer)}};
    if (peer.round_trip == base::kNever)
      one["round_trip_us"] = nullptr;
    else
      one["round_trip_us"] = std::chrono::duration<double, std::micro>(peer.round_trip).count();
    all.push_back(std::move(one));
  }
  return all;
}

/// Names may come from anywhere: nothing of them reaches a terminal as a command.
std::string plain(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

/// "  ok       loopback        TCP to 127.0.0.1 works", and below it what to do.
void append(const Finding& finding, std::string& text) {
  text += fmt::format("  {:8} {:20} {}\n", name_of(finding.verdict), finding.subject, plain(finding.text));
  if (finding.verdict != Verdict::kOk) text += fmt::format("  {:8} {:20} -> {}\n", "", "", plain(finding.todo));
}

}  // namespace

bool DoctorReport::is_well() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.verdict == Verdict::kProblem; });
}

std::string DoctorReport::as_json() const {
  Json json = {{"schema", kSchema},
               {"version", mv_version_text()},
               {"well", is_well()},
               {"host", host_name()},
               {"pid", getpid()},
               {"running", running},
               {"rank", settings.rank},
               {"nodes", settings.nodes},
               {"role", doctor::name_of_role(settings.role)},
               {"address", address},
               {"launcher", sources.launcher.empty() ? Json() : Json(sources.launcher)},
               {"launchers_seen", sources.seen},
               {"settings", write_settings(sources.settings)}};
  Json& all = json["findings"] = Json::array();
  for (const Finding& finding : findings)
    all.push_back({{"area", finding.area},
                   {"subject", finding.subject},
                   {"verdict", name_of(finding.verdict)},
                   {"text", finding.text},
                   {"todo", finding.todo}});
  json["peers"] = write_peers(peers);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string DoctorReport::as_text() const {
  std::string text = fmt::format(
      "polyverso {} on {}, pid {}: {}\n", mv_version_text(), host_name(), getpid(),
      running ? fmt::format("rank {} of {}", settings.rank, settings.nodes) : "no node runs in this process");
  const char* area = "";
  for (const Finding& finding : findings) {
    if (std::string_view(finding.area) != area) text += fmt::format("\n{}\n", area = finding.area);
    append(finding, text);
  }
  text += "\nsettings that are not the defaults\n";
  bool any = false;
  for (const SettingUse& use : sources.settings) {
    if (use.source == SettingUse::Source::kDefault) continue;
    any = true;
    text += fmt::format("  {:8} {:20} {}\n", "", plain(fmt::format("{}={}", use.key, use.value)), plain(use.from));
  }
  if (!any) text += "  none\n";
  return text + (is_well() ? "\nall is well\n" : "\nthere are problems: see the lines with ->\n");
}

}  // namespace mv::capi
