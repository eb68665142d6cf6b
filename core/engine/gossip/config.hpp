#pragma once
// The configuration of a gossip node: dpwa's YAML with a few more keys.

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
  uint32_t port = 0;                               ///< 0: any free port, for this node only
  std::optional<uint32_t> metrics = std::nullopt;  ///< port of an HTTP server for its metrics, at `host`; 0: any free port
  int line = 0;                                    ///< in the configuration
  std::string address() const;
};
/// MV_EINVAL for an invalid name, host or port.
base::Status check_node(const Node& node);

/// How the models of two nodes are averaged.
enum class Exchange {
  kPull,       ///< one-sided: a node averages its model with a peer's, which does not change
  kSymmetric,  ///< both nodes average with each other's model, or neither does
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
  codec::Spec compression;       ///< of snapshots sent in messages
  std::optional<uint64_t> seed;  ///< without one, every run draws other random numbers
  Topology topology = Topology::kRandom;
  std::string secret;
  std::string tls, tls_cert, tls_key, tls_ca;  ///< as the settings of a cluster; empty: not given
  bool tcp_only = false;  ///< also between nodes of one machine

  const Node* find(std::string_view name) const;
};

/// Reads the YAML in `text`, in one of three layouts: dpwa's list of maps with one key each; that list with the nodes
/// as items of their own, after a `nodes` without a value; or one map with all keys. Every error message begins with
/// `file`, the line and the key. MV_EINVAL.
base::Result<Config> parse_config(std::string_view text, const std::string& file);
/// Whether the node `name` can be created from this configuration. All other nodes must be reachable, so their ports
/// must not be 0. MV_EINVAL, MV_ENOTFOUND.
base::Status check_for_node(const Config& config, const std::string& name, const std::string& file);

}  // namespace mv::gossip
