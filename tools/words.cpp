#include "words.hpp"

#include <algorithm>
#include <ranges>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/similar.hpp"
#include "run/options.hpp"

namespace mv::tools {
namespace {

constexpr std::string_view kHelp = "help", kRun = "run";

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* find_command(const CLI::App& app, std::string_view name) {
  const auto all = commands_of(app);
  const auto found = std::ranges::find_if(all, [&](const CLI::App* one) { return one->get_name() == name; });
  return found != all.end() ? *found : nullptr;
}

/// "checkpoint inspect: " before a message about that command.
std::string lead(const CLI::App& app) {
  std::string path;
  for (const CLI::App* one = &app; one->get_parent() != nullptr; one = one->get_parent()) path = one->get_name() + (path.empty() ? "" : " ") + path;
  return path.empty() ? path : path + ": ";
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : commands_of(app)) names.push_back(one->get_name());
  return names;
}

/// The option that a word such as --servers=2 or -n4 names, or null.
const CLI::Option* find_option(const CLI::App& app, const std::string& word) {
  const bool is_long = word.starts_with("--");
  const std::string name = is_long ? word.substr(2, word.find('=') - 2) : word.substr(1, 1);
  for (const CLI::Option* option : app.get_options()) {
    const auto& names = is_long ? option->get_lnames() : option->get_snames();
    if (std::ranges::find(names, name) != names.end()) return option;
  }
  return nullptr;
}

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& word) {
  std::vector<std::string> shorts, longs;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    std::ranges::copy(option->get_snames(), std::back_inserter(shorts));
    std::ranges::copy(option->get_lnames(), std::back_inserter(longs));
  }
  const std::string shown = word.substr(0, word.find('='));
  const std::string bare = shown.substr(std::min(shown.find_first_not_of('-'), shown.size()));
  const bool letter = bare.size() == 1 && !shown.starts_with("--");
  const std::string meant = letter ? base::did_you_mean(bare, shorts, "-") : base::did_you_mean(bare, longs, "--");
  const std::string path = lead(app);
  throw UsageError{fmt::format("{}there is no option {}{}{} polyverso {}--help lists the options", path, shown, meant, meant.empty() ? ";" : "",
                               path.empty() ? "" : path.substr(0, path.size() - 2) + " ")};
}

/// As a shell would read it back.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
  return text + "'";
}

std::string line_of(std::ranges::input_range auto&& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  std::ranges::replace_if(line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  constexpr size_t kLongest = 200;
  return line.size() <= kLongest ? line : line.substr(0, kLongest) + "...";
}

[[noreturn]] void refuse_command(const CLI::App& app, const Words& words, size_t at) {
  const auto names = names_of(app);
  const std::string& word = words.own[at];
  std::string meant = base::did_you_mean(word, names);
  if (meant.empty() && app.get_parent() == nullptr)
    meant = fmt::format("; to start a program: polyverso run -- {}", line_of(words.own | std::views::drop(at)));
  throw UsageError{fmt::format("{}there is no command \"{}\"{} (commands: {})", lead(app), word, meant, fmt::join(names, ", "))};
}

/// Nothing takes the words from `at` on.
[[noreturn]] void refuse_rest(const CLI::App& app, const Words& words, size_t begin, size_t at) {
  const std::string rest = line_of(words.own | std::views::drop(at));
  if (app.get_name() != kRun) throw UsageError{fmt::format("{}unexpected: {}", lead(app), rest)};
  std::string hint = "run: unexpected: " + rest + "; the workers' command follows after --";
  if (!words.dashes) {
    const std::string before = line_of(words.own | std::views::take(at) | std::views::drop(begin));
    hint += fmt::format(", as in: polyverso run {}{}-- {}", before, before.empty() ? "" : " ", rest);
  }
  throw UsageError{hint};
}

/// How many of the words behind an option are its values.
size_t values_behind(const CLI::Option& option, const Words& words, size_t at) {
  const std::string& word = words.own[at];
  const bool joined = word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
  if (joined || option.get_items_expected_max() == 0 || at + 1 == words.own.size()) return 0;
  return option.get_items_expected_min() > 0 || !is_option(words.own[at + 1]) ? 1 : 0;
}

void check_options(const CLI::App& app, const Words& words, size_t begin) {
  const auto positionals = app.get_options([](const CLI::Option* option) { return option->get_positional(); });
  size_t taken = 0;
  for (size_t at = begin; at < words.own.size(); ++at) {
    const std::string& word = words.own[at];
    if (!is_option(word)) {
      if (++taken > positionals.size()) refuse_rest(app, words, begin, at);
      continue;
    }
    const CLI::Option* option = find_option(app, word);
    if (option == nullptr) refuse_option(app, word);
    at += values_behind(*option, words, at);
  }
}

[[noreturn]] void refuse_no_command(const CLI::App& app, const Words& words, size_t at) {
  if (app.get_parent() != nullptr) throw UsageError{fmt::format("{}name a command: {}", lead(app), fmt::join(names_of(app), ", "))};
  const CLI::App* run = find_command(app, kRun);
  if (at < words.own.size() && find_option(*run, words.own[at]) == nullptr) refuse_option(app, words.own[at]);
  const std::string line = line_of(words.own);
  throw UsageError{fmt::format("no command before {}; did you mean polyverso run {}{}-- {}?", line.empty() ? "--" : words.own.front(), line,
                               line.empty() ? "" : " ", words.command.empty() ? "COMMAND" : line_of(words.command))};
}

}  // namespace

Words split_words(const std::vector<std::string>& words) {
  const auto dashes = std::ranges::find(words, "--");
  Words split{{words.begin(), dashes}, {}, dashes != words.end()};
  if (split.dashes) split.command.assign(dashes + 1, words.end());
  return split;
}

std::vector<std::string> checked(const CLI::App& app, const Words& given) {
  Words words = given;
  if (words.own.empty() && !words.dashes) words.own = {std::string(kHelp)};
  const bool help = !words.own.empty() && words.own.front() == kHelp;
  while (!words.own.empty() && words.own.front() == kHelp) words.own.erase(words.own.begin());
  const CLI::App* command = &app;
  size_t at = 0;
  for (; !commands_of(*command).empty() && at < words.own.size() && !is_option(words.own[at]); ++at) {
    const CLI::App* next = find_command(*command, words.own[at]);
    if (next == nullptr) refuse_command(*command, words, at);
    command = next;
  }
  const bool complete = commands_of(*command).empty() || (at < words.own.size() && find_option(*command, words.own[at]) != nullptr);
  if (!complete && !help) refuse_no_command(*command, words, at);
  check_options(*command, words, at);
  if (!words.command.empty() && command->get_name() != kRun)
    throw UsageError{fmt::format("{}unexpected: -- {} (only polyverso run starts a command)", lead(*command), line_of(words.command))};
  if (help) words.own.push_back("--help");
  return words.own;
}

std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool blank = c == ' ' || c == '\t' || c == '\n';
    if (quote == 0 && blank) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else {
      words.back() += c == '\\' && quote != '\'' && i + 1 < text.size() ? text[++i] : c;
    }
  }
  if (quote != 0) throw UsageError{fmt::format("the quote {} is never closed in: {}", quote, text)};
  return words;
}

}  // namespace mv::tools
