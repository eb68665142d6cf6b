#pragma once
// What a gossiping node is told: dpwa's YAML, and a few keys more.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "codec/codec.hpp"
#include "engine/gossip/factor.hpp"
#include "engine/gossip/topology.hpp"
#include "math/outer_step.hpp"

namespace mv::gossip {

struct Node {
  std::string name, host;
  uint32_t port = 0;                               ///< 0: any free one, for the own node only
  std::optional<uint32_t> metrics = std::nullopt;  ///< port of an HTTP server for its figures, at `host`; 0: any free one
  int line = 0;                                    ///< of the configuration
  std::string address() const;
};
/// MV_EINVAL for a name, host or port that can't be one.
base::Status check_node(const Node& node);

/// How two models come together.
enum class Exchange {
  kPull,       ///< a node takes of a peer's, who need not know
  kSymmetric,  ///< two nodes take of each other's, both or neither
};

/// See engine/gossip/noloco.hpp.
inline constexpr math::OuterFactors kNolocoFactors{0.5, 0.7, 0.7};

struct Config {
  std::vector<Node> nodes;
  double fetch_probability = 1;
  base::Nanos timeout = std::chrono::milliseconds(2500);
  Interpolation interpolation;
  std::optional<math::OuterFactors> noloco;  ///< instead of averaging
  Exchange exchange = Exchange::kPull;
  codec::Spec compression;       ///< of what messages bring
  std::optional<uint64_t> seed;  ///< without one, every run throws other rng
  Topology topology = Topology::kRandom;
  std::string secret;
  bool tcp_only = false;  ///< also within a machine

  const Node* find(std::string_view name) const;
};

/// Reads the YAML in `text`, in any of three layouts: a list of maps with one key each, as dpwa has it; that list with the nodes
/// themselves in it, behind a `nodes` without a value; one map with all keys. `file` begins every message, with the line and the key.
/// MV_EINVAL.
base::Result<Config> parse_config(std::string_view text, const std::string& file);
/// Whether the node `name` can be made of it: of the others every one must be reachable. MV_EINVAL, MV_ENOTFOUND.
base::Status check_for_node(const Config& config, const std::string& name, const std::string& file);

}  // namespace mv::gossip
