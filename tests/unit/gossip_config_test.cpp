// engine/gossip/config: dpwa's YAML in its layouts, and errors with file, line and key for every wrong value.

#include <string>

#include "engine/gossip/config.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::gossip;

constexpr const char* kList = R"(# A comment
---
- nodes:
  - {name: w1, host: localhost, port: 45000}
  - {name: w2, host: "::1", port: 45001}
- fetch_probability: 0.5
- timeout_ms: 1500
- interpolation: loss
- divergence_threshold: 0.2
- constant: { value: 0.25 }
- clock: 0
- loss: 0
- loss_weighting: peer
- seed: 18446744073709551615
- topology: one-peer-exponential
- secret: s3cret
)";
constexpr const char* kFlat = R"(---
- nodes:
- {name: w1, host: localhost, port: 45000}
- {name: w2, host: "::1", port: 45001}
- fetch_probability: 0.5
- timeout_ms: 1500
- interpolation: loss
- divergence_threshold: 0.2
- constant: { value: 0.25 }
- clock: 0
- loss: 0
- loss_weighting: peer
- seed: 18446744073709551615
- topology: exponential
- secret: s3cret
)";
constexpr const char* kMap = R"(nodes:
  - {name: w1, host: localhost, port: 45000}
  - {name: w2, host: "::1", port: 45001}
fetch_probability: 0.5
timeout_ms: 1500
interpolation: loss
divergence_threshold: 0.2
constant: { value: 0.25 }
clock:
loss: {}
loss_weighting: peer
seed: 18446744073709551615
topology: exponential
secret: s3cret
)";

void three_layouts_say_the_same(void**) {
  for (const char* text : {kList, kFlat, kMap}) {
    const auto read = parse_config(text, "x.yaml");
    if (!read.ok()) print_error("%s\n", read.status().text().c_str());
    assert_true(read.ok());
    const Config& config = read.value();
    assert_int_equal(config.nodes.size(), 2);
    assert_string_equal(config.nodes[0].address().c_str(), "localhost:45000");
    assert_string_equal(config.nodes[1].address().c_str(), "[::1]:45001");
    assert_true(config.fetch_probability == 0.5 && config.timeout == std::chrono::milliseconds(1500));
    assert_true(config.interpolation.method == Method::kLoss && config.interpolation.constant == 0.25);
    assert_true(config.interpolation.loss_weighting == LossWeighting::kPeer && config.interpolation.divergence_threshold == 0.2);
    assert_true(config.seed == UINT64_MAX && config.topology == Topology::kExponential);
    assert_string_equal(config.secret.c_str(), "s3cret");
    assert_non_null(config.find("w2"));
    assert_null(config.find("w3"));
  }
}

void missing_keys_have_defaults(void**) {
  const auto read = parse_config("nodes: [{name: a, host: h, port: 1}]", "x.yaml");
  assert_true(read.ok());
  assert_true(read.value().fetch_probability == 1 && read.value().interpolation.constant == 0.5 && !read.value().seed);
}

void extensions_of_dpwas_format_are_read(void**) {
  const auto read = [](const std::string& text) {
    auto config = parse_config(text, "x.yaml");
    if (!config.ok()) print_error("%s\n", config.status().text().c_str());
    assert_true(config.ok());
    return std::move(config).value();
  };
  assert_true(read("nodes: []").exchange == Exchange::kPull && !read("nodes: []").noloco && read("nodes: []").compression.is_none());
  assert_true(read("exchange: symmetric").exchange == Exchange::kSymmetric && read("exchange: pull").exchange == Exchange::kPull);
  assert_string_equal(mv::codec::to_text(read("compression: int8 block=64").compression).c_str(), "int8 block=64");
  assert_string_equal(mv::codec::to_text(read("- compression: bf16").compression).c_str(), "bf16");
  assert_true(read("compression: none").compression.is_none());
  assert_true(read("weighting: peer").interpolation.loss_weighting == LossWeighting::kPeer);
  assert_true(read("topology: matching\nseed: 3").topology == Topology::kMatching);
  assert_true(read("transport: tcp").tcp_only && !read("transport: auto").tcp_only);
  assert_true(read("nodes: [{name: a, host: h, port: 1, metrics: 9100}]").nodes[0].metrics == 9100);
  const Config noloco = read("- interpolation: noloco\n- noloco: {beta: 0.5}");
  assert_true(noloco.exchange == Exchange::kSymmetric && noloco.noloco->alpha == 0.5 && noloco.noloco->beta == 0.5 && noloco.noloco->gamma == 0.7);
  assert_true(read("interpolation: noloco\nexchange: pull").exchange == Exchange::kPull);
  assert_false(read("noloco: {beta: 0.5}").noloco.has_value());
  assert_true(read("interpolation: constant").interpolation.constant == 0.5);
  assert_true(read("constant: 0\ninterpolation: clock").interpolation.method == Method::kClock);
  assert_int_equal(read("- nodes: []\n- {name: a, host: h, port: 1}\n- {name: b, host: h, port: 0}").nodes.size(), 2);
}

void a_node_can_be_made_of_it(void**) {
  const auto refused = [](const char* text, const char* name, const char* expected) {
    const auto read = parse_config(text, "x.yaml");
    assert_true(read.ok());
    const auto status = check_for_node(read.value(), name, "x.yaml");
    assert_string_equal(status.text().substr(0, std::string(expected).size()).c_str(), expected);
  };
  refused("timeout_ms: 5", "a", "x.yaml:1: nodes: none given");
  refused("nodes: []", "a", "x.yaml:1: nodes: none given");
  refused("nodes:\n- {name: a, host: h, port: 1}\n- {name: b, host: h, port: 0}\n", "a", "x.yaml:3: nodes: node \"b\" has the port 0");
  refused("nodes:\n- {name: a, host: h, port: 1}\n- {name: b, host: h, port: 0}\n", "b", "");
  refused("nodes: [{name: a, host: h, port: 1}]", "z", "x.yaml: no node is called \"z\"; the nodes are a");
}

void assert_refused(const char* text, const char* expected) {
  const auto read = parse_config(text, "x.yaml");
  assert_false(read.ok());
  assert_int_equal(read.status().code(), MV_EINVAL);
  if (read.status().text().find(expected) == std::string::npos) print_error("\"%s\" is not in \"%s\"\n", expected, read.status().text().c_str());
  assert_true(read.status().text().find(expected) != std::string::npos);
}

void every_wrong_value_is_named_with_its_place(void**) {
  assert_refused("", "x.yaml:1: it is empty");
  assert_refused("just text", "expected a list or a map of settings");
  assert_refused("- nodes:\n- 5\n", "x.yaml:2: expected a map with one key");
  assert_refused("- {name: a, host: h, port: 1}\n", "x.yaml:1: a node outside of `nodes`");
  assert_refused("nodes: 5", "x.yaml:1: nodes: expected a list of nodes");
  assert_refused("nodes:\n- {name: a, host: h, port: 65536}\n", "x.yaml:2: nodes: node \"a\": its port, 65536");
  assert_refused("nodes:\n- {name: a, host: h, port: x}\n", "its port is not a number");
  assert_refused("nodes:\n- {name: a, host: h}\n", "its port is not a number");
  assert_refused("nodes:\n- {name: a, port: 1}\n", "node \"a\" has no host");
  assert_refused("nodes:\n- {name: a b, host: h, port: 1}\n", "no white space");
  assert_refused("nodes:\n- {name: a, host: h, port: 1, colour: red}\n", "no such key: colour");
  assert_refused("nodes:\n- {name: a, host: h, port: 1}\n- {name: a, host: h, port: 2}\n", "x.yaml:3: nodes: node \"a\" is given twice");
  assert_refused("nodes:\n- {name: a, host: h, port: 1}\n- {name: b, host: h, port: 1}\n",
                 "x.yaml:3: nodes: node \"b\" has the address of \"a\" in line 2, h:1");
  assert_refused("nodes:\n- {name: a, host: h, port: 0, port: 7}\n", "x.yaml:2: nodes: port is given twice");
  assert_refused("- nodes: []\n- {name: a, host: h, port: x}\n", "x.yaml:2: nodes: node \"a\": its port");
  assert_refused("timeout_ms: 1\n---\ntimeout_ms: 2\n", "x.yaml:3: a second document");
  assert_refused("fetch_probability: 1.5", "x.yaml:1: fetch_probability: \"1.5\"");
  assert_refused("fetch_probability: nan", "fetch_probability");
  assert_refused("- nodes:\n- fetch_probability: often\n", "x.yaml:2: fetch_probability");
  assert_refused("timeout_ms: 0", "timeout_ms: \"0\" is not");
  assert_refused("timeout_ms: 2.5", "timeout_ms");
  assert_refused("interpolation: best", "\"best\" is not one of constant, clock, loss");
  assert_refused("constant: 0", "constant: expected { value: … }");
  assert_refused("constant: {value: 2}", "constant");
  assert_refused("constant: 0\ninterpolation: constant", "x.yaml:1: constant: expected { value: … }");
  assert_refused("constant: {value: 0.5, more: 1}", "constant");
  assert_refused("clock: 3", "clock: this method has no parameters");
  assert_refused("divergence_threshold: -1", "divergence_threshold");
  assert_refused("divergence_threshold: inf", "divergence_threshold");
  assert_refused("loss_weighting: both", "loss_weighting");
  assert_refused("seed: -1", "seed");
  assert_refused("topology: star", "\"star\" is not one of random, ring");
  assert_refused("topology: hypercube\nnodes: [{name: a, host: h, port: 1}, {name: b, host: h, port: 2}, {name: c, host: h, port: 3}]",
                 "a hypercube needs");
  assert_refused("timeout_ms: 1\ntimeout_ms: 2\n", "x.yaml:2: timeout_ms: already given in line 1");
  assert_refused("timeout: 5", "x.yaml:1: timeout: no such setting; the settings are nodes, fetch_probability");
  assert_refused("a: [1, 2\nb: 3", "x.yaml:2:");
  assert_refused("secret: [1]", "secret: expected a text");
  assert_refused("seed: 1\ntopology: hypercube\nnodes: [{name: a, host: h, port: 1}, {name: b, host: h, port: 2}, {name: c, host: h, port: 3}]",
                 "x.yaml:2: topology: a hypercube needs");
  assert_refused("- clock: 0\n- topology: matching", "x.yaml:2: topology: matching needs a `seed`");
  assert_refused("exchange: push", "x.yaml:1: exchange: \"push\" is not one of pull, symmetric");
  assert_refused("compression: 1bit", "x.yaml:1: compression: \"1bit\" is not one of none, fp16, bf16, int8");
  assert_refused("compression: int8 block=3", "compression: \"int8 block=3\" is not one of");
  assert_refused("compression: [int8]", "x.yaml:1: compression");
  assert_refused("transport: shm", "x.yaml:1: transport: \"shm\" is not one of auto, tcp");
  assert_refused("noloco: 1", "x.yaml:1: noloco: expected {");
  assert_refused("noloco: {alpha: 1}", "noloco: alpha: \"1\" is not a number from 0 to less than 1");
  assert_refused("noloco: {gamma: nan}", "noloco: gamma: \"nan\"");
  assert_refused("noloco: {delta: 1}", "noloco: no such key: delta");
  assert_refused("weighting: none", "x.yaml:1: weighting: \"none\" is not one of own, peer");
  assert_refused("loss_weighting: own\nweighting: own", "x.yaml:2: weighting: already given as loss_weighting in line 1");
  assert_refused("nodes: [{name: a, host: h, port: 1, metrics: often}]", "node \"a\": metrics: \"often\"");
  assert_refused("nodes: [{name: a, host: h, port: 1, metrics: 70000}]", "node \"a\": metrics: 70000");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(three_layouts_say_the_same),
      cmocka_unit_test(missing_keys_have_defaults),
      cmocka_unit_test(extensions_of_dpwas_format_are_read),
      cmocka_unit_test(a_node_can_be_made_of_it),
      cmocka_unit_test(every_wrong_value_is_named_with_its_place),
  };
  return cmocka_run_group_tests_name("gossip config", tests, nullptr, nullptr);
}
