#include "api/gossip/gossip_status.hpp"

#include "base/json_writer.hpp"
#include "runtime/observer.hpp"

namespace mv::api {

namespace {

std::string no_answer(const gossip::Node& node, const base::Status& why, bool json) {
  if (!json) return fmt::format("{} at {}: no answer: {}\n", node.name, node.address(), why.text());
  base::JsonWriter report;
  report.object([&] {
    report.field("name", node.name);
    report.field("address", node.address());
    report.field("error", why.text());
  });
  return report.take();
}

}  // namespace

transport::TlsSettings tls_of(const gossip::Config& config) {
  return {transport::tls_mode(config.tls).value_or(transport::TlsMode::kAuto), {config.tls_cert, config.tls_key, config.tls_ca}};
}

base::Result<std::string> gossip_status(const gossip::Config& config, bool json, base::Nanos patience) {
  std::string all;
  const transport::TlsSettings tls = tls_of(config);
  for (const gossip::Node& node : config.nodes) {
    base::Result<std::string> told = base::error(MV_EUNREACHABLE, "its port is 0 (any free port), so the configuration does not give its address");
    if (node.port != 0) told = runtime::observe({node.address(), config.secret, json, patience, tls});
    if (!told.ok() && told.status().code() == MV_EINTR) return told.status();
    if (json && !all.empty()) all += ",\n";
    all += told.ok() ? told.value() : no_answer(node, told.status(), json);
  }
  return json ? "[" + all + "]" : all;
}

}  // namespace mv::api
