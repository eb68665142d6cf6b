#include "engine/gossip/config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <ranges>
#include <set>
#include <span>

#include "base/similar.hpp"
#include "engine/gossip/yaml.hpp"

namespace mv::gossip {

namespace {

constexpr int64_t kLongestTimeout = 24 * 3600 * 1000;
constexpr std::string_view kConstantWanted = "expected { value: … } with a number from 0 to 1";

template <typename T>
std::optional<T> number(const std::string& text) {
  T parsed{};
  const char* const end = text.data() + text.size();
  const auto [stopped, failed] = std::from_chars(text.data(), end, parsed);
  return failed == std::errc() && stopped == end ? std::optional(parsed) : std::nullopt;
}

/// Text of the file for an error message: long text is cut, and control characters are replaced.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 80;
  size_t end = std::min(text.size(), kMost);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // whole characters
  std::string out(text.substr(0, end));
  std::ranges::replace_if(out, [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }, '?');
  return end == text.size() ? out : fmt::format("{}… ({} bytes)", out, text.size());
}

bool is_nothing(const Yaml& value) { return value.is_null() || value.text == "0" || (value.is_map() && value.items.empty()); }

/// Reads one document into a Config. The function of a key returns what is wrong with the value; its caller adds the
/// line and the key.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  base::Status read(const Yaml& document) {
    if (document.is_null()) return wrong(document, "it is empty: it needs at least `nodes`");
    if (document.is_map()) return read_map(document);
    if (!document.is_list()) return wrong(document, "expected a list or a map of settings");
    for (const Yaml& item : document.items) {
      if (!item.is_map()) return wrong(item, "expected a map with one key, as in `- timeout_ms: 2500`");
      const base::Status status = item.find("name") != nullptr ? read_loose_node(item) : read_map(item);
      if (!status.ok()) return status;
    }
    return {};
  }
  Config& config() { return config_; }

  base::Status check_whole() {
    if (lines_.contains("weighting") && lines_.contains("loss_weighting"))
      return wrong_at(lines_.at("weighting"), "weighting", fmt::format("already given as loss_weighting in line {}", lines_.at("loss_weighting")));
    if (is_noloco_) {
      config_.noloco = noloco_;
      if (!lines_.contains("exchange")) config_.exchange = Exchange::kSymmetric;
    }
    if (no_constant_ && !is_noloco_ && config_.interpolation.method == Method::kConstant)
      return wrong_at(lines_.at("constant"), "constant", std::string(kConstantWanted));
    if (auto status = check_addresses(); !status.ok()) return status;
    if (config_.topology == Topology::kMatching && !config_.seed)
      return wrong_at(lines_.at("topology"), "topology", "matching needs a `seed`, the same for all nodes, so that all draw the same pairs");
    const auto status = check_topology(config_.topology, config_.nodes.size());
    return status.ok() ? status : wrong_at(lines_.at("topology"), "topology", status.text());
  }

 private:
  base::Status check_addresses() const {
    std::map<std::string, const Node*> seen;
    for (const Node& node : config_.nodes) {
      if (node.port == 0) continue;  // any free port: each node gets another one
      const auto [other, fresh] = seen.try_emplace(node.address(), &node);
      if (!fresh) return wrong_at(node.line, "nodes", fmt::format("node \"{}\" has the address of \"{}\" in line {}, {}", node.name,
                                                                  other->second->name, other->second->line, node.address()));
    }
    return {};
  }

  base::Status wrong_at(int line, const std::string& key, const std::string& what) const {
    return base::error(MV_EINVAL, "{}:{}: {}{}{}", file_, line, key, key.empty() ? "" : ": ", what);
  }
  base::Status wrong(const Yaml& where, const std::string& what) const { return wrong_at(where.line, "", what); }

  base::Status read_map(const Yaml& map) {
    for (size_t i = 0; i < map.items.size(); i += 2) {
      const Yaml &key = map.items[i], &value = map.items[i + 1];
      const std::string& name = key.text;
      const int line = key.line;
      if (const auto [first, fresh] = lines_.try_emplace(name, line); !fresh)
        return wrong_at(line, shown(name), fmt::format("already given in line {}", first->second));
      const auto known = std::ranges::find(kKeys, name, &Key::name);
      if (known == std::end(kKeys)) {
        const auto names = kKeys | std::views::transform(&Key::name);
        return wrong_at(line, shown(name), "no such setting; the settings are " + all_keys() + base::did_you_mean(name, names));
      }
      wrong_line_ = line;
      if (const auto status = (this->*known->read)(value); !status.ok()) return wrong_at(wrong_line_, name, status.text());
    }
    return {};
  }

  base::Status read_loose_node(const Yaml& item) {
    if (!nodes_follow_) return wrong(item, "a node outside of `nodes`; put `- nodes:` before the first one");
    const auto status = read_node(item);
    return status.ok() ? status : wrong_at(item.line, "nodes", status.text());
  }

  /// MV_EINVAL for a map with a repeated key.
  static base::Status check_keys(const Yaml& map) {
    std::map<std::string_view, int> lines;
    for (size_t i = 0; i < map.items.size(); i += 2) {
      const auto [first, fresh] = lines.try_emplace(map.items[i].text, map.items[i].line);
      if (!fresh) return bad("{} is given twice, in line {} and in line {}", shown(first->first), first->second, map.items[i].line);
    }
    return {};
  }

  base::Status read_node(const Yaml& item) {
    if (!item.is_map()) return base::Status(MV_EINVAL, "a node is written {name: w1, host: localhost, port: 45000}");
    if (auto status = check_keys(item); !status.ok()) return status;
    Node node;
    node.line = item.line;
    std::optional<uint32_t> port;
    for (size_t i = 0; i < item.items.size(); i += 2) {
      const Yaml& value = item.items[i + 1];
      const std::string& name = item.items[i].text;
      if (name == "name") node.name = value.text;
      else if (name == "host") node.host = value.text;
      else if (name == "port") port = number<uint32_t>(value.text);
      else if (name == "metrics") {
        node.metrics = number<uint32_t>(value.text);
        if (!node.metrics) return bad("node \"{}\": metrics: \"{}\" is not a number from 0 to 65535", shown(node.name), shown(value.text));
      } else {
        return bad("node \"{}\": no such key: {}; a node has name, host, port and metrics", shown(node.name), shown(name));
      }
    }
    if (!port) return bad("node \"{}\": its port is not a number from 0 to 65535", shown(node.name));
    node.port = *port;
    if (auto status = check_node(node); !status.ok()) return status;
    if (!names_.insert(node.name).second) return bad("node \"{}\" is given twice", node.name);
    config_.nodes.push_back(std::move(node));
    return {};
  }

  base::Status read_nodes(const Yaml& value) {
    if (value.is_null() || (value.is_list() && value.items.empty())) {
      nodes_follow_ = true;
      return {};
    }
    if (!value.is_list()) return base::Status(MV_EINVAL, "expected a list of nodes, each written {name: w1, host: localhost, port: 45000}");
    for (const Yaml& item : value.items)
      if (auto status = read_node(item); !status.ok()) {
        wrong_line_ = item.line;
        return status;
      }
    return {};
  }

  base::Status read_probability(const Yaml& value) {
    const auto read = number<double>(value.text);
    if (!read || !(*read >= 0 && *read <= 1)) return bad("\"{}\" is not a number from 0 to 1", shown(value.text));
    config_.fetch_probability = *read;
    return {};
  }
  base::Status read_timeout(const Yaml& value) {
    const auto read = number<int64_t>(value.text);
    if (!read || *read < 1 || *read > kLongestTimeout)
      return bad("\"{}\" is not a whole number of milliseconds from 1 to {}", shown(value.text), kLongestTimeout);
    config_.timeout = std::chrono::milliseconds(*read);
    return {};
  }
  base::Status read_interpolation(const Yaml& value) {
    const std::string& name = value.text;
    if (name == "constant") config_.interpolation.method = Method::kConstant;
    else if (name == "clock") config_.interpolation.method = Method::kClock;
    else if (name == "loss") config_.interpolation.method = Method::kLoss;
    else if (name == "noloco") is_noloco_ = true;
    else return bad("\"{}\" is not one of constant, clock, loss, noloco", shown(name));
    return {};
  }
  base::Status read_threshold(const Yaml& value) {
    const auto read = number<double>(value.text);
    if (!read || !std::isfinite(*read) || *read < 0) return bad("\"{}\" is not a finite number of at least 0; 0 turns it off", shown(value.text));
    config_.interpolation.divergence_threshold = *read;
    return {};
  }
  base::Status read_constant(const Yaml& value) {
    no_constant_ = is_nothing(value);
    if (no_constant_) return {};
    const Yaml* const given = value.items.size() == 2 ? value.find("value") : nullptr;
    const auto read = given != nullptr ? number<double>(given->text) : std::nullopt;
    if (!read || !(*read >= 0 && *read <= 1)) return base::Status(MV_EINVAL, std::string(kConstantWanted));
    config_.interpolation.constant = *read;
    return {};
  }
  base::Status read_nothing(const Yaml& value) {
    return is_nothing(value) ? base::Status() : bad("this method has no parameters: write 0");
  }
  base::Status read_noloco(const Yaml& value) {
    if (!value.is_map()) return base::Status(MV_EINVAL, "expected { alpha: …, beta: …, gamma: … }, where omitted keys keep their defaults");
    if (auto status = check_keys(value); !status.ok()) return status;
    for (size_t i = 0; i < value.items.size(); i += 2) {
      const std::string &name = value.items[i].text, &text = value.items[i + 1].text;
      double* const factor = name == "alpha" ? &noloco_.alpha : name == "beta" ? &noloco_.beta : name == "gamma" ? &noloco_.gamma : nullptr;
      if (factor == nullptr) return bad("no such key: {}; the keys are alpha, beta and gamma", shown(name));
      const auto read = number<double>(text);
      const double most = name == "alpha" ? 1 : 2;
      if (!read || !(*read >= 0 && *read < most)) return bad("{}: \"{}\" is not a number from 0 to less than {}", name, shown(text), most);
      *factor = *read;
    }
    return {};
  }
  base::Status read_exchange(const Yaml& value) {
    const std::string& name = value.text;
    if (name != "pull" && name != "symmetric") return bad("\"{}\" is not one of pull, symmetric", shown(name));
    config_.exchange = name == "pull" ? Exchange::kPull : Exchange::kSymmetric;
    return {};
  }
  base::Status read_compression(const Yaml& value) {
    auto spec = codec::parse(value.text);
    const codec::CodecRef codec = spec.ok() ? codec::make(spec.value()) : nullptr;
    if (!spec.ok() || (codec != nullptr && !codec->suits_values()))
      return bad("\"{}\" is not one of none, fp16, bf16, int8, \"int8 block=N\" (N values share a scale, 16 to 65536)", shown(value.text));
    config_.compression = std::move(spec).value();
    return {};
  }
  base::Status read_transport(const Yaml& value) {
    const std::string& name = value.text;
    if (name != "auto" && name != "tcp") return bad("\"{}\" is not one of auto, tcp", shown(name));
    config_.tcp_only = name == "tcp";
    return {};
  }
  base::Status read_weighting(const Yaml& value) {
    const std::string& name = value.text;
    if (name != "own" && name != "peer") return bad("\"{}\" is not one of own, peer", shown(name));
    config_.interpolation.loss_weighting = name == "peer" ? LossWeighting::kPeer : LossWeighting::kOwn;
    return {};
  }
  base::Status read_seed(const Yaml& value) {
    config_.seed = number<uint64_t>(value.text);
    return config_.seed ? base::Status() : bad("\"{}\" is not a whole number from 0 to 2^64 - 1", shown(value.text));
  }
  base::Status read_topology(const Yaml& value) {
    const auto topology = parse_topology(value.text);
    if (!topology) return bad("\"{}\" is not one of {}", shown(value.text), topology_names());
    config_.topology = *topology;
    return {};
  }
  base::Status read_secret(const Yaml& value) {
    if (value.text.empty()) return bad("expected a text that is not empty");  // the value is a secret: never show it
    config_.secret = value.text;
    return {};
  }
  base::Status read_tls(const Yaml& value) {
    const std::string& name = value.text;
    if (name != "auto" && name != "off" && name != "psk" && name != "mutual") return bad("\"{}\" is not one of auto, off, psk, mutual", shown(name));
    config_.tls = name;
    return {};
  }
  template <auto File>
  base::Status read_file_name(const Yaml& value) {
    if (value.text.empty()) return bad("expected the name of a file");
    config_.*File = value.text;
    return {};
  }

  template <typename... Args>
  static base::Status bad(fmt::format_string<Args...> format, Args&&... args) {
    return base::error(MV_EINVAL, format, std::forward<Args>(args)...);
  }

  struct Key {
    std::string_view name;
    base::Status (Reader::*read)(const Yaml&);
  };
  static const Key kKeys[21];
  static std::string all_keys() {
    std::string all;
    for (const Key& key : kKeys) all += (all.empty() ? "" : ", ") + std::string(key.name);
    return all;
  }

  const std::string& file_;
  Config config_;
  std::map<std::string, int> lines_;  ///< of the keys so far
  std::set<std::string> names_;       ///< of the nodes so far
  int wrong_line_ = 0;                ///< line of an error in the current key
  bool nodes_follow_ = false;
  bool no_constant_ = false;
  bool is_noloco_ = false;
  math::OuterFactors noloco_ = kNolocoFactors;
};

const Reader::Key Reader::kKeys[] = {{"nodes", &Reader::read_nodes},
                                     {"fetch_probability", &Reader::read_probability},
                                     {"timeout_ms", &Reader::read_timeout},
                                     {"interpolation", &Reader::read_interpolation},
                                     {"divergence_threshold", &Reader::read_threshold},
                                     {"constant", &Reader::read_constant},
                                     {"clock", &Reader::read_nothing},
                                     {"loss", &Reader::read_nothing},
                                     {"noloco", &Reader::read_noloco},
                                     {"loss_weighting", &Reader::read_weighting},
                                     {"weighting", &Reader::read_weighting},
                                     {"exchange", &Reader::read_exchange},
                                     {"compression", &Reader::read_compression},
                                     {"transport", &Reader::read_transport},
                                     {"seed", &Reader::read_seed},
                                     {"topology", &Reader::read_topology},
                                     {"secret", &Reader::read_secret},
                                     {"tls", &Reader::read_tls},
                                     {"tls_cert", &Reader::read_file_name<&Config::tls_cert>},
                                     {"tls_key", &Reader::read_file_name<&Config::tls_key>},
                                     {"tls_ca", &Reader::read_file_name<&Config::tls_ca>}};

}  // namespace

std::string Node::address() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

base::Status check_node(const Node& node) {
  constexpr size_t kLongestName = 200;
  const auto is_text = [](std::string_view text) {
    return !text.empty() && text.size() <= kLongestName &&
           std::ranges::none_of(text, [](char letter) { return static_cast<unsigned char>(letter) <= 0x20 || letter == 0x7f; });
  };
  if (!is_text(node.name)) return base::error(MV_EINVAL, "a node's name must have 1 to {} letters and no white space", kLongestName);
  if (!is_text(node.host)) return base::error(MV_EINVAL, "node \"{}\" has no host: give a name or an address", node.name);
  if (node.metrics.value_or(0) > 65535)
    return base::error(MV_EINVAL, "node \"{}\": metrics: {} is not a number from 0 to 65535", node.name, *node.metrics);
  if (node.port > 65535) return base::error(MV_EINVAL, "node \"{}\": its port, {}, is not a number from 0 to 65535", node.name, node.port);
  return {};
}

const Node* Config::find(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name, &Node::name);
  return found == nodes.end() ? nullptr : &*found;
}

base::Result<Config> parse_config(std::string_view text, const std::string& file) {
  const auto document = parse_yaml(text, file);
  if (!document.ok()) return document.status();
  Reader reader(file);
  if (auto status = reader.read(document.value()); !status.ok()) return status;
  if (auto status = reader.check_whole(); !status.ok()) return status;
  return std::move(reader.config());
}

base::Status check_for_node(const Config& config, const std::string& name, const std::string& file) {
  if (config.nodes.empty())
    return base::error(MV_EINVAL, "{}:1: nodes: none given; each is written {{name: w1, host: localhost, port: 45000}}", file);
  const Node* const self = config.find(name);
  if (self == nullptr) {
    constexpr size_t kMostNames = 20;
    std::string names;
    for (const Node& node : std::span(config.nodes).first(std::min(config.nodes.size(), kMostNames)))
      names += (names.empty() ? "" : ", ") + node.name;
    if (config.nodes.size() > kMostNames) names += fmt::format(" and {} more", config.nodes.size() - kMostNames);
    return base::error(MV_ENOTFOUND, "{}: no node is called \"{}\"; the nodes are {}", file, name, names);
  }
  for (const Node& node : config.nodes)
    if (&node != self && node.port == 0)
      return base::error(MV_EINVAL, "{}:{}: nodes: node \"{}\" has the port 0, so it can't be reached: only a node's own port may be 0", file,
                         node.line, node.name);
  return {};
}

}  // namespace mv::gossip
