#include "doctor/languages.hpp"

#include <polyverso/polyverso.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include <fmt/core.h>

namespace mv::tools {
namespace {

struct Language {
  const char* interpreter;
  const char* program;  ///< prints the version of the library that it has loaded
  const char* path;     ///< the variable that leads to its modules
};

constexpr std::array kLanguages = {
    Language{"python3", "python3 -c 'import polyverso.capi; print(polyverso.capi.mv_version_text())'", "PYTHONPATH"},
    Language{"perl", "perl -MPolyverso -e 'print Polyverso::CAPI::mv_version_text()'", "PERL5LIB"},
    Language{"luajit", "luajit -e 'print(require(\"polyverso\").mv_version_text())'", "LUA_PATH and LUA_CPATH"},
    Language{"lua5.1", "lua5.1 -e 'print(require(\"polyverso\").mv_version_text())'", "LUA_PATH and LUA_CPATH"},
    Language{"lua5.4", "lua5.4 -e 'print(require(\"polyverso\").mv_version_text())'", "LUA_PATH_5_4 and LUA_CPATH_5_4"},
};

/// Exit statuses of the shell's `command -v`, and of timeout(1).
constexpr int kNotThere = 127, kTooLong = 124;

/// The last line that a shell command writes, and its exit status.
std::pair<std::string, int> output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return {"", kNotThere};
  std::string text;
  std::array<char, 256> part{};
  for (size_t got; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), got);
  const int status = pclose(pipe);
  while (text.ends_with('\n')) text.pop_back();
  const size_t newline = text.rfind('\n');
  return {newline == std::string::npos ? text : text.substr(newline + 1),
          WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

LanguageFinding judge(const Language& language, const std::string& output, int status) {
  if (status == kTooLong)
    return {language.interpreter, "problem", "does not load its module within 10 s",
            fmt::format("run `{}` and check where it hangs", language.program)};
  if (status != 0)
    return {language.interpreter, "note", "can't load its module: " + output,
            fmt::format("nothing to do if it is not used; else install the missing module, or set {}: docs/installing.md",
                        language.path)};
  if (output == mv_version_text())
    return {language.interpreter, "ok", fmt::format("its module uses library {}", output), ""};
  return {language.interpreter, "problem",
          fmt::format("its module uses library {}, but this is {}", output, mv_version_text()),
          fmt::format("keep only one release in {} and LD_LIBRARY_PATH", language.path)};
}

}  // namespace

std::vector<LanguageFinding> examine_languages() {
  std::vector<LanguageFinding> findings;
  for (const Language& language : kLanguages) {
    if (output_of(fmt::format("command -v {} 2>&1", language.interpreter)).second != 0) continue;
    const auto [output, status] = output_of(fmt::format("timeout 10 {} 2>&1 </dev/null", language.program));
    findings.push_back(judge(language, output, status));
  }
  return findings;
}

}  // namespace mv::tools
