// Command lines of `polyverso`, one word per line: any words parse to a command within its limits, or to a usage error with a message.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "command_line.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mv::tools;
  std::vector<std::string> words(1);
  for (const char letter : std::string(reinterpret_cast<const char*>(data), size)) {
    if (letter == '\n') words.emplace_back();
    else if (letter != '\0') words.back() += letter;
  }
  try {
    const CommandLine line = read_command_line(words);
    check((line.which == CommandLine::Which::kText) == !line.text.empty());
    if (line.which != CommandLine::Which::kRun) return 0;
    check(line.run.workers >= 1 && line.run.workers <= 4096 && line.run.servers >= 0 && line.run.servers <= 4096);
    check(line.run.commands.size() == 1 || line.run.commands.size() == static_cast<size_t>(line.run.workers));
    for (const Command& command : line.run.commands) check(!command.empty());
  } catch (const UsageError& error) {
    check(!error.text.empty());
  }
  return 0;
}
