// engine/gossip/yaml: the limits of reading a configuration, counted in events, values and bytes, never in time.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/gossip/config.hpp"
#include "engine/gossip/yaml.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::gossip;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;  // sanitizers reserve terabytes of addresses
#else
constexpr bool kLimitsMemory = true;
#endif
constexpr rlim_t kMostMemory = 256 << 20;

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

/// Asserts that a limit stops the reader: no result, and no more work than the limits allow.
void assert_stopped(const std::string& text, const std::string& expected) {
  const YamlLimits limits;
  YamlWork work;
  const auto read = parse_yaml(text, "x.yaml", limits, &work);
  assert_false(read.ok());
  assert_int_equal(read.status().code(), MV_EINVAL);
  if (read.status().text().find(expected) == std::string::npos)
    print_error("\"%s\" is not in \"%s\"\n", expected.c_str(), read.status().text().c_str());
  assert_true(read.status().text().find(expected) != std::string::npos);
  assert_true(read.status().text().size() < 1000);
  assert_true(work.events <= 2 * limits.values + 9 && work.values <= limits.values + 1 && work.bytes <= 2 * limits.bytes);
}

/// Whether `work` succeeds in a separate process with limited memory and time.
bool ends_well(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit memory{kMostMemory, kMostMemory}, seconds{120, 120};  // the time limit is only a safeguard: it ends an endless loop
    if (kLimitsMemory) setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CPU, &seconds);
    try {
      work();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void a_comma_is_an_error(void**) {
  assert_true(ends_well([] {
    for (const char* text : {",", ",\n", "[,", "{,", "- ,", "a: ,"})
      if (const auto read = parse_config(text, "x.yaml"); read.ok() || read.status().text().empty()) _exit(2);
  }));
  assert_stopped(",", "x.yaml:1: did not find expected node content");
}

/// Random corruptions of a valid file, such as editors, transfers and typing errors make.
std::string mutated(std::string text, uint64_t seed) {
  std::mt19937_64 rng(seed);
  constexpr std::string_view kMarks = ",:-[]{}#&*!|>'\"%@`?\n\t ~0a\\\xff";
  const auto place = [&] { return text.empty() ? 0 : rng() % text.size(); };
  for (uint64_t edits = rng() % 8 + 1; edits > 0; --edits) {
    const size_t at = place();
    switch (rng() % 6) {
      case 0: text.insert(at, 1, kMarks[rng() % kMarks.size()]); break;
      case 1: text.erase(at, rng() % 16 + 1); break;
      case 2: text.insert(at, text.substr(place(), rng() % 64)); break;
      case 3: text.resize(at); break;
      case 4: text.insert(at, rng() % 64 + 1, kMarks[rng() % kMarks.size()]); break;
      default: if (!text.empty()) text[at] = static_cast<char>(rng());
    }
  }
  return text;
}

void mutations_of_the_sample_cost_little(void**) {
  std::ifstream file(SAMPLES "/gossip.yaml");
  const std::string sample((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  assert_true(parse_config(sample, "gossip.yaml").ok());
  assert_true(ends_well([&] {
    for (uint64_t seed = 1; seed <= 10'000; ++seed) {
      const std::string text = mutated(sample, seed);
      if (const auto read = parse_config(text, "x.yaml"); !read.ok() && read.status().text().empty()) _exit(2);
    }
  }));
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    const std::string text = mutated(sample, seed);
    YamlWork work;
    const auto read = parse_yaml(text, "x.yaml", {}, &work);
    // Every event takes at least a byte, except the four around the document and the empty or missing value of a map.
    const bool cheap = work.events <= 2 * text.size() + 8;
    if (!cheap) print_error("seed %llu: %zu events for %zu bytes\n", static_cast<unsigned long long>(seed), work.events, text.size());
    assert_true(cheap);
  }
}

void aliases_count_as_their_expansion(void**) {
  std::string laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name < 'm'; ++name)
    laughs +=
        std::string(1, name) + ": &" + name + " [" + repeated(std::string("*") + char(name - 1) + ", ", 10) + "]\n";
  assert_stopped(laughs, "x.yaml:5: more than 200000 values");
  assert_stopped("a: &a " + std::string(400'000, 'x') + "\nb: [" + repeated("*a, ", 1000) + "]", "x.yaml:2: the texts have more than 1048576 bytes");
  std::string nested = "a: &a [x]\n";
  for (char name = 'b'; name <= 'z'; ++name) nested += std::string(1, name) + ": &" + name + " [*" + char(name - 1) + "]\n";
  assert_stopped(nested, "more than 16 deep");
  assert_stopped("a: &a [*a]", "x.yaml:1: *a: it is inside &a itself");
  assert_stopped("a: *b", "x.yaml:1: *b: no &b comes before it");
}

void aliases_within_the_limits_are_read(void**) {
  const auto read = parse_config("nodes:\n- {name: a, host: &h localhost, port: 1}\n- {name: b, host: *h, port: 2}\n", "x.yaml");
  assert_true(read.ok());
  assert_string_equal(read.value().nodes[1].address().c_str(), "localhost:2");
}

void depth_is_limited(void**) {
  for (const char* open : {"[", "{", "- ", "? ", "{a: ", "[&a "}) assert_stopped(repeated(open, 50'000), "more than 16 deep");
  assert_true(parse_yaml(repeated("[", 16) + repeated("]", 16), "x.yaml").ok());
  assert_stopped(repeated("[", 17) + repeated("]", 17), "more than 16 deep");
}

void size_is_limited(void**) {
  assert_stopped(std::string((1 << 20) + 1, 'x'), "x.yaml:1: 1048577 bytes; a configuration may have at most 1048576");
  assert_stopped("[" + repeated("1,", 500'000) + "]", "x.yaml:1: more than 200000 values");
  assert_stopped("[" + repeated("{}, ", 250'000) + "]", "more than 200000 values");
  assert_stopped(repeated("%TAG !a! b\n", 50'000), "too many %TAG directives");
  const auto huge = parse_config("timeout_ms: " + std::string(1'000'000, '9'), "x.yaml");
  assert_true(!huge.ok() && huge.status().text().size() < 300);
  assert_true(huge.status().text().find("… (1000000 bytes)\" is not a whole number") != std::string::npos);
  const auto key = parse_config("\"" + std::string(500, 'k') + "\": 1", "x.yaml");
  assert_true(!key.ok() && key.status().text().size() < 500);
  const auto escaped = parse_config("\"a\\e[31m\\nb\": 1", "x.yaml");
  assert_true(!escaped.ok() && escaped.status().text().find("a?[31m?b: no such setting") != std::string::npos);
}

void many_nodes_are_read(void**) {
  std::string text = "nodes:\n";
  for (int i = 0; i < 10'000; ++i) text += "- {name: node" + std::to_string(i) + ", host: 10.0.0.1, port: " + std::to_string(i + 1) + "}\n";
  const auto read = parse_config(text, "x.yaml");
  assert_true(read.ok());
  assert_int_equal(read.value().nodes.size(), 10'000);
  const auto none = check_for_node(read.value(), "w1", "x.yaml");
  assert_true(none.text().find("node19 and 9980 more") != std::string::npos);
}

void invalid_utf8_is_reported_with_its_line(void**) {
  assert_stopped("\n\na: \xff\n", "x.yaml:3: invalid leading UTF-8 octet; write the file in UTF-8");
  assert_stopped("a: 1\nb: \x01", "x.yaml:2: control characters are not allowed");
  assert_stopped(std::string("a: 1\n\n\0", 7), "x.yaml:3: control characters");
  assert_true(parse_yaml("\xef\xbb\xbf" "a: 1\n", "x.yaml").ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_comma_is_an_error),
      cmocka_unit_test(mutations_of_the_sample_cost_little),
      cmocka_unit_test(aliases_count_as_their_expansion),
      cmocka_unit_test(aliases_within_the_limits_are_read),
      cmocka_unit_test(depth_is_limited),
      cmocka_unit_test(size_is_limited),
      cmocka_unit_test(many_nodes_are_read),
      cmocka_unit_test(invalid_utf8_is_reported_with_its_line),
  };
  return cmocka_run_group_tests_name("gossip yaml", tests, nullptr, nullptr);
}
