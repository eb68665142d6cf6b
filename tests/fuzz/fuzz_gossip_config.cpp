// A gossip configuration: any input gives a configuration or an error with a line number, with bounded work.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/gossip/config.hpp"
#include "engine/gossip/yaml.hpp"

namespace {

using namespace mv::gossip;

void check(bool holds) {
  if (!holds) std::abort();
}

size_t values_of(const Yaml& value, size_t depth) {
  check(depth <= YamlLimits{}.depth);
  size_t values = 1;
  for (const Yaml& item : value.items) values += values_of(item, depth + 1);
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const YamlLimits limits;
  YamlWork work;
  const auto document = parse_yaml(text, "f", limits, &work);
  check(work.events <= 2 * size + 8 && work.values <= limits.values + 1);
  if (document.ok()) check(values_of(document.value(), 0) <= limits.values);

  const auto config = parse_config(text, "f");
  if (!config.ok()) {
    check(config.status().text().starts_with("f:") && config.status().text().size() < 2000);
    return 0;
  }
  check(document.ok());
  for (const Node& node : config.value().nodes) {
    check(check_node(node).ok() && config.value().find(node.name) != nullptr && node.line > 0);
    static_cast<void>(check_for_node(config.value(), node.name, "f"));
  }
  return 0;
}
