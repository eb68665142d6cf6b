#include "doctor/doctor.hpp"

#include <polyverso/polyverso.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "doctor/languages.hpp"
#include "doctor/tuning.hpp"
#include "library_text.hpp"
#include "run/options.hpp"
#include "secret.hpp"

namespace mv::tools {
namespace {

using Json = nlohmann::ordered_json;

/// The last lines that the library's text may have.
constexpr std::string_view kWell = "all is well\n", kProblems = "there are problems: see the lines with ->\n";

/// As if the shell had set it: the library then names the variable where it speaks of the setting.
void say(std::string key, const std::string& value) {
  for (char& c : key) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  setenv(("POLYVERSO_" + key).c_str(), value.c_str(), 1);
}

void say_all(const DoctorOptions& options) {
  for (const auto& [key, value] : parse_settings(options.settings, /*own=*/true)) say(key, value);
  if (!options.master.empty()) say("master", options.master);
  if (options.secret_file.empty()) return;
  std::string secret;
  if (!read_secret(options.secret_file, secret))
    throw UsageError{
        fmt::format("--secret-file {}: the file is empty or can't be read", options.secret_file)};
  say("secret", secret);
}

Json as_json(const LanguageFinding& finding) {
  return {{"area", "languages"},
          {"subject", finding.subject},
          {"verdict", finding.verdict},
          {"text", finding.text},
          {"todo", finding.todo}};
}

/// In one piece, so that several processes of a launcher don't write into each other's lines.
void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int print_json(const std::string& report, const std::vector<LanguageFinding>& languages) {
  Json json = Json::parse(report);
  for (const LanguageFinding& finding : languages) {
    json["findings"].push_back(as_json(finding));
    if (finding.verdict == "problem") json["well"] = false;
  }
  print(json.dump(2) + "\n");
  return json["well"].get<bool>() ? 0 : 1;
}

/// The languages come before the last line, which is about them, too.
int print_text(std::string report, const std::vector<LanguageFinding>& languages) {
  bool well = report.ends_with(kWell);
  std::string lines = languages.empty() ? "" : "languages\n";
  for (const LanguageFinding& finding : languages) {
    lines += fmt::format("  {:8} {:20} {}\n", finding.verdict, finding.subject, finding.text);
    if (!finding.todo.empty()) lines += fmt::format("  {:8} {:20} -> {}\n", "", "", finding.todo);
    well = well && finding.verdict != "problem";
  }
  const size_t last = report.rfind('\n', report.size() - 2) + 1;
  report = report.substr(0, last) + lines + (languages.empty() ? "" : "\n") + (well ? kWell : kProblems).data();
  print(report);
  return well ? 0 : 1;
}

int print_failure(const char* doing) {
  fmt::print(stderr, "polyverso doctor: {}: {}\n", doing, mv_last_error());
  return 1;
}

/// Nobody leaves before all have looked. A process that is only a server does not take part, and serves until they have gone.
bool meet() {
  const mv_status status = mv_barrier(0, nullptr);
  return status == MV_OK || status == MV_ESTATE;
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  say_all(options);
  if (options.tune) return run_tuning(options);
  bool joined = false;
  if (options.join) {
    joined = mv_init(nullptr) == MV_OK;
    if (!joined) print_failure("can't join");
    if (joined && !meet()) return print_failure("while waiting for the others");
  }
  const uint32_t flags = (options.json ? MV_JSON : 0) | (options.master.empty() ? 0 : MV_REACH);
  std::string report;
  const mv_status status = whole_text(
      [&](char* text, uint64_t capacity, uint64_t* length) { return mv_doctor_text(0, flags, text, capacity, length); },
      report);
  if (status != MV_OK) return print_failure("can't examine");
  const bool alone = options.master.empty() && !options.join;
  const auto languages = alone ? examine_languages() : std::vector<LanguageFinding>();
  const int well = options.json ? print_json(report, languages) : print_text(std::move(report), languages);
  if (!options.join) return well;
  if (!joined) return 1;
  if (!meet()) return print_failure("while waiting for the others");
  if (mv_shutdown(0) != MV_OK) return print_failure("while leaving");
  return well;
}

}  // namespace mv::tools
