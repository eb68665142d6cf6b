#include "doctor_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/json_writer.hpp"
#include "doctor/peers.hpp"

namespace mv::capi {
namespace {

using doctor::Finding;
using doctor::Verdict;
using base::JsonWriter;

/// The version of the JSON's format; raised only if a field changes its meaning.
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

void write_setting(JsonWriter& json, const SettingUse& use) {
  json.field("name", use.key);
  json.field("value", use.value);
  json.field("source", name_of(use.source));
  json.field("from", use.from);
  json.field("unused", use.unused);
}

void write_finding(JsonWriter& json, const Finding& finding) {
  json.field("area", finding.area);
  json.field("subject", finding.subject);
  json.field("verdict", name_of(finding.verdict));
  json.field("text", finding.text);
  json.field("todo", finding.todo);
}

void write_peer(JsonWriter& json, const api::PeerReport& peer) {
  json.field("rank", peer.rank);
  json.field("role", doctor::name_of_role(peer.role));
  json.field("host", peer.host);
  json.field("pid", peer.pid);
  json.field("address", peer.address);
  json.field("state", doctor::name_of(peer.state));
  json.field("needed", peer.needed);
  json.field("transport", doctor::name_of(peer.transport));
  json.field("why_not_shm", doctor::why_not_shm(peer));
  json.field("cipher", peer.cipher);
  using Micros = std::chrono::duration<double, std::micro>;
  json.field("round_trip_us", peer.round_trip != base::kNever ? std::optional(Micros(peer.round_trip).count()) : std::nullopt);
}

/// Replaces control characters: names come from untrusted sources, and must not send commands to a terminal.
std::string plain(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

/// " ok loopback TCP to 127.0.0.1 works", and below it the fix.
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
  JsonWriter json(JsonWriter::Layout::kIndented);
  const auto list = [&](std::string_view name, const auto& all, void (*write)(JsonWriter&, const typename std::decay_t<decltype(all)>::value_type&)) {
    json.array(name, [&] {
      for (const auto& one : all) json.object([&] { write(json, one); });
    });
  };
  json.object([&] {
    json.field("schema", kSchema);
    json.field("version", mv_version_text());
    json.field("well", is_well());
    json.field("host", host_name());
    json.field("pid", getpid());
    json.field("running", running);
    json.field("rank", settings.rank);
    json.field("nodes", settings.nodes);
    json.field("role", doctor::name_of_role(settings.role));
    json.field("address", address);
    json.field("launcher", sources.launcher.empty() ? std::nullopt : std::optional(sources.launcher));
    json.field("launchers_seen", sources.seen);
    list("settings", sources.settings, write_setting);
    list("findings", findings, write_finding);
    list("peers", peers, write_peer);
  });
  return json.take() + "\n";
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
