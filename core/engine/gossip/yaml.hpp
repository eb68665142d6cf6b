#pragma once
// YAML as a tree of values, within limits: the text may come from anybody. libyaml scans it; the limits are enforced here, on its events.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mv::gossip {

struct Yaml {
  enum class NodeKind { kNull, kScalar, kList, kMap };

  NodeKind kind = NodeKind::kNull;
  int line = 1;
  std::string text;         ///< of a scalar; empty for all other kinds
  std::vector<Yaml> items;  ///< of a list; of a map: key, value, key, value, in the order of the text; keys are scalars or null

  bool is_null() const { return kind == NodeKind::kNull; }
  bool is_scalar() const { return kind == NodeKind::kScalar; }
  bool is_list() const { return kind == NodeKind::kList; }
  bool is_map() const { return kind == NodeKind::kMap; }
  /// The value of the first such key of a map, or null.
  const Yaml* find(std::string_view key) const;
};

/// What a document may cost. An alias costs what it stands for, so that aliases of aliases are no way around.
struct YamlLimits {
  size_t bytes = 1 << 20;   ///< of the text, and of all scalars together
  size_t values = 200'000;  ///< scalars, lists and maps, keys among them
  size_t depth = 16;        ///< of lists and maps in each other
};

/// What reading a document took, for tests.
struct YamlWork {
  size_t events = 0;  ///< of libyaml
  size_t values = 0;
  size_t bytes = 0;  ///< of the scalars
};

/// The one document in `text`; no text at all is null. Its errors are MV_EINVAL, "FILE:LINE: what is wrong", and are found after work that is
/// proportional to the limits at most.
base::Result<Yaml> parse_yaml(std::string_view text, const std::string& file, const YamlLimits& limits = {}, YamlWork* work = nullptr);

}  // namespace mv::gossip
