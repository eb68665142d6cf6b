#pragma once
// A reader of YAML into a tree of values, with limits because the text is untrusted. libyaml scans it; the limits are
// enforced here, on its events.

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
  /// The value of the first entry of a map with this key, or null.
  const Yaml* find(std::string_view key) const;
};

/// The limits of a document. An alias costs as much as its target, so aliases of aliases cannot evade them.
struct YamlLimits {
  size_t bytes = 1 << 20;   ///< of the text, and of all scalars together
  size_t values = 200'000;  ///< scalars, lists and maps, keys among them
  size_t depth = 16;        ///< of nested lists and maps
};

/// The work that reading a document took, for tests.
struct YamlWork {
  size_t events = 0;  ///< of libyaml
  size_t values = 0;
  size_t bytes = 0;  ///< of the scalars
};

/// Reads the one document in `text`; empty text is null. Errors are MV_EINVAL, "FILE:LINE: what is wrong", and are
/// found with work at most proportional to the limits.
base::Result<Yaml> parse_yaml(std::string_view text, const std::string& file, const YamlLimits& limits = {}, YamlWork* work = nullptr);

}  // namespace mv::gossip
