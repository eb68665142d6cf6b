// The measured costs of messages, as JSON. docs/operations.md lists the fields: fields are only added.

#include "api/group/tuning.hpp"
#include "base/json_writer.hpp"
#include "doctor/peers.hpp"
#include "doctor_report.hpp"
#include "engine/collective/cost_text.hpp"

namespace mv::capi {
namespace {

using base::JsonWriter;

constexpr int kCostsSchema = 1;
const collective::Costs kDefault;

void write_transport(JsonWriter& json, const api::TransportTuning& transport) {
  const collective::TransportCost& cost = transport.fit.cost;
  const collective::TransportCost& before = kDefault.of(transport.transport);
  json.field("transport", doctor::name_of(transport.transport));
  json.field("workers", transport.workers);
  json.field("alpha_us", cost.alpha * 1e6);
  json.field("beta_ns", cost.beta * 1e9);
  json.field("error", transport.fit.error);
  json.field("default_alpha_us", before.alpha * 1e6);
  json.field("default_beta_ns", before.beta * 1e9);
  json.field("why_not_shm", transport.why_not_shm);
  json.field("cost", collective::write_cost(transport.transport, cost));
}

void write_trial(JsonWriter& json, const api::Trial& trial, base::TransportKind transport) {
  json.field("transport", doctor::name_of(transport));
  json.field("bytes", trial.bytes);
  json.field("algorithm", collective::algorithm_name(trial.choice.algorithm));
  json.field("by_host", trial.choice.by_host);
  json.field("predicted_us", trial.choice.seconds * 1e6);
  json.field("measured_us", trial.seconds * 1e6);
}

void write_algorithm(JsonWriter& json, const intranode::Decision& decision) {
  json.field("class", decision.of.name());
  json.field("most_bytes", decision.of.most());
  json.field("way", intranode::traits(decision.algorithm).name);
  json.field("why", intranode::why_name(decision.why));
  json.array("measured", [&] {
    for (const auto& [algorithm, nanos] : decision.scores)
      json.object([&] {
        json.field("way", intranode::traits(algorithm).name);
        json.field("us", nanos / 1e3);
      });
  });
}

}  // namespace

std::string tuning_as_json(const api::Tuning& tuning) {
  JsonWriter json(JsonWriter::Layout::kIndented);
  json.object([&] {
    json.field("schema", kCostsSchema);
    json.field("version", mv_version_text());
    json.field("workers", tuning.workers);
    json.field("hosts", tuning.hosts);
    json.field("collective_costs", tuning.setting());
    json.field("gamma_ns", tuning.basis.costs.gamma * 1e9);
    json.field("default_gamma_ns", kDefault.gamma * 1e9);
    json.array("transports", [&] {
      for (const api::TransportTuning& transport : tuning.transports) json.object([&] { write_transport(json, transport); });
    });
    json.array("trials", [&] {
      for (const api::Trial& trial : tuning.trials) json.object([&] { write_trial(json, trial, tuning.between); });
    });
    json.array("ways", [&] {
      for (const intranode::Decision& decision : tuning.algorithms) json.object([&] { write_algorithm(json, decision); });
    });
  });
  return json.take() + "\n";
}

}  // namespace mv::capi
