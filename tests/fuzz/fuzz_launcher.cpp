// Variables of launchers, and Slurm's host lists: any text gives a place with everything that a node needs, nothing, or an error that names
// a variable. The input is lines NAME=VALUE; the first line is the value of `launcher`.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "launcher.hpp"

namespace {

using namespace mv::capi;

void check(bool holds) {
  if (!holds) std::abort();
}

void try_hosts(const std::string& list) {
  const auto hosts = expand_hosts(list);
  if (!hosts.ok()) return check(!hosts.status().text().empty());
  check(!hosts.value().empty() && hosts.value().size() <= 65'536);
  for (const std::string& host : hosts.value()) check(host.size() <= 255);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string wish = text.substr(0, text.find('\n'));
  std::map<std::string, std::string, std::less<>> variables;
  for (size_t at = wish.size(); at < text.size(); at = text.find('\n', at + 1)) {
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string value = line.substr(equals + 1);
    variables[line.substr(0, equals)] = value.substr(0, value.find('\0'));  // as in an environment
    try_hosts(value);
  }
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(std::string_view(name));
    return found != variables.end() ? found->second.c_str() : nullptr;
  };
  const MakerOfSocket maker = [](int descriptor) { return descriptor % 2 == 0 ? std::optional<std::string>("4711.88123") : std::nullopt; };
  for (const std::string_view word : {std::string_view(wish), std::string_view("auto")}) {
    const auto detected = detect_launcher(word, environment, maker);
    if (!detected.ok()) {
      check(!detected.status().text().empty());
      continue;
    }
    if (!detected.value().place) continue;
    const Assignment& place = *detected.value().place;
    check(!place.launcher.empty() && !detected.value().seen.empty());
    for (const auto& found : {place.rank, place.nodes, place.role, place.master, place.bind, place.advertise, place.rendezvous})
      check(!found || (!found->value.empty() && !found->from.empty()));
  }
  const auto refused = refuse_unknown_launchers(environment);
  check(refused.ok() || !refused.text().empty());
  return 0;
}
