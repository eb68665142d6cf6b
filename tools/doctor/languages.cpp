#include "doctor/languages.hpp"

#include <polyverso/polyverso.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

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

/// What a shell command writes, without the newlines at its end, and its exit status.
std::pair<std::string, int> output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return {"", kNotThere};
  std::string text;
  std::array<char, 256> part{};
  for (size_t got; (got = fread(part.data(), 1, part.size(), pipe)) > 0;) text.append(part.data(), got);
  const int status = pclose(pipe);
  while (text.ends_with('\n')) text.pop_back();
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

std::string_view last_line(std::string_view text) { return text.substr(text.rfind('\n') + 1); }

/// Perl gives the reason first, and then what failed because of it. Warnings, as of a missing locale, may come before it.
std::string perls_reason(std::string_view text) {
  const size_t found = text.starts_with("Can't ") ? 0 : text.find("\nCan't ") + 1;
  const std::string_view line = text.substr(found, text.find('\n', found) - found);
  return std::string(line.substr(0, line.find(" (@INC ")));  // a list of all folders follows
}

/// Lua's first line; the next one, too, if that is the dynamic linker's reason and not the first of the folders.
std::string luas_reason(std::string_view text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  if (end == std::string_view::npos || !line.ends_with(':')) return std::string(line);
  std::string_view next = text.substr(end + 1, text.find('\n', end + 1) - end - 1);
  while (next.starts_with('\t') || next.starts_with(' ')) next.remove_prefix(1);
  if (!next.starts_with("no f")) return fmt::format("{} {}", line, next);  // "no field", "no file"
  line.remove_suffix(1);
  return std::string(line);
}

std::string reason_of(std::string_view interpreter, std::string_view text) {
  if (interpreter.starts_with("perl")) return perls_reason(text);
  if (interpreter.starts_with("lua")) return luas_reason(text);
  return std::string(last_line(text));  // of Python's traceback
}

LanguageFinding judge(const Language& language, const std::string& output, int status) {
  if (status == kTooLong)
    return {language.interpreter, "problem", "does not load its module within 10 s",
            fmt::format("run `{}` and check where it hangs", language.program)};
  if (status != 0)
    return {language.interpreter, "note", "can't load its module: " + reason_of(language.interpreter, output),
            fmt::format("nothing to do if it is not used; else install the missing module, or set {}: docs/installing.md",
                        language.path)};
  const std::string_view version = last_line(output);
  if (version == mv_version_text())
    return {language.interpreter, "ok", fmt::format("its module uses library {}", version), ""};
  return {language.interpreter, "problem",
          fmt::format("its module uses library {}, but this is {}", version, mv_version_text()),
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
