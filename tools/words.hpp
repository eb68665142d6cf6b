#pragma once
// The words of a command line, checked before CLI11 reads them: its own messages neither suggest nor keep the words' order.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mv::tools {

/// What stands before `--` and behind it.
struct Words {
  std::vector<std::string> own, command;
  bool dashes = false;  ///< there is a `--`
};

Words split_words(const std::vector<std::string>& words);

/// The own words as CLI11 reads them: `help run` becomes `run --help`. Throws UsageError for a command or an option that does not exist,
/// and for words that nothing takes.
std::vector<std::string> checked(const CLI::App& app, const Words& words);

/// The words of a text as a shell would cut it: quotes ' and ", and \ before any character. Throws UsageError for a quote that stays open.
std::vector<std::string> shell_words(const std::string& text);

}  // namespace mv::tools
