#include "engine/collective/cost_text.hpp"

#include <charconv>
#include <optional>
#include <set>
#include <vector>

namespace mv::collective {
namespace {

constexpr std::string_view kBlank = " \t\n\r\f\v";
constexpr std::string_view kReduce = "reduce";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos; at = line.find_first_not_of(kBlank, at)) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<size_t> transport_named(std::string_view name) {
  for (size_t transport = 0; transport < base::kTransportNames.size(); ++transport)
    if (name == base::kTransportNames[transport]) return transport;
  return std::nullopt;
}

std::string known_names() {
  std::string names;
  for (const char* transport : base::kTransportNames) names += std::string(transport) + ", ";
  return names + std::string(kReduce);
}

base::Result<double> read_seconds(std::string_view word, std::string_view text, const char* what) {
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size()) return base::error(MV_EINVAL, "{}: {} is \"{}\", which is not a number", word, what, text);
  if (!(seconds >= 0 && seconds <= kMostCost)) return base::error(MV_EINVAL, "{}: {} is outside 0 .. {} seconds", word, what, kMostCost);
  return seconds;
}

/// Reads "5e-06,2.5e-10", the text after a transport's name.
base::Result<TransportCost> read_transport(std::string_view word, std::string_view values) {
  const size_t comma = values.find(',');
  if (comma == std::string_view::npos)
    return base::error(MV_EINVAL, "{}: expected two numbers, ALPHA,BETA: seconds per message and seconds per byte", word);
  const auto alpha = read_seconds(word, values.substr(0, comma), "alpha");
  if (!alpha.ok()) return alpha.status();
  const auto beta = read_seconds(word, values.substr(comma + 1), "beta");
  if (!beta.ok()) return beta.status();
  return TransportCost{alpha.value(), beta.value()};
}

}  // namespace

std::string write_cost(base::TransportKind transport, const TransportCost& cost) {
  return fmt::format("{}={},{}", base::kTransportNames[static_cast<size_t>(transport)], cost.alpha, cost.beta);
}

std::string write_costs(const Costs& costs) {
  std::string line;
  for (size_t transport = 0; transport < costs.transports.size(); ++transport) line += write_cost(static_cast<base::TransportKind>(transport), costs.transports[transport]) + " ";
  return line + fmt::format("{}={}", kReduce, costs.gamma);
}

base::Result<Costs> read_costs(std::string_view line, const Costs& otherwise) {
  Costs costs = otherwise;
  std::set<std::string_view> said;
  for (const std::string_view word : words_of(line)) {
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const auto transport = transport_named(name);
    if (!transport && name != kReduce) return base::error(MV_EINVAL, "unknown cost \"{}\"; known: {}", name, known_names());
    if (equals == std::string_view::npos) return base::error(MV_EINVAL, "{} has no value; write {}", name, transport ? fmt::format("{}=ALPHA,BETA", name) : "reduce=GAMMA");
    if (!said.insert(name).second) return base::error(MV_EINVAL, "{} is given twice", name);
    const std::string_view values = word.substr(equals + 1);
    if (transport) {
      const auto cost = read_transport(word, values);
      if (!cost.ok()) return cost.status();
      costs.transports[*transport] = cost.value();
    } else {
      const auto gamma = read_seconds(word, values, "gamma");
      if (!gamma.ok()) return gamma.status();
      costs.gamma = gamma.value();
    }
  }
  return costs;
}

}  // namespace mv::collective
