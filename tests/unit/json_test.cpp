// core/base: JSON output, and parsing of untrusted JSON.

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_reader.hpp"
#include "base/json_writer.hpp"
#include "base/utf8.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::base::as_utf8;
using mv::base::json_quoted;
using mv::base::JsonDocument;
using mv::base::JsonValue;
using mv::base::JsonWriter;
using mv::base::utf8_end;

template <typename Value>
std::string written(const Value& value) {
  JsonWriter json;
  json.value(value);
  return json.take();
}

void write_sample(JsonWriter& json) {
  json.object([&] {
    json.field("name", "w");
    json.field("rows", uint64_t{18'446'744'073'709'551'615u});
    json.field("staleness", -1);
    json.field("whole", true);
    json.field("nothing", nullptr);
    json.field("maybe", std::optional<int>());
    json.field("shape", std::vector<uint64_t>{2, 3});
    json.object("empty", [] {});
    json.array("none", [] {});
    json.array("list", [&] {
      json.object([&] { json.field("a", 1); });
      json.value("b");
    });
  });
}

void objects_and_arrays_nest(void**) {
  JsonWriter line, indented(JsonWriter::Layout::kIndented);
  write_sample(line);
  write_sample(indented);
  const std::string text = line.take();
  assert_string_equal(text.c_str(),
                      R"({"name":"w","rows":18446744073709551615,"staleness":-1,"whole":true,"nothing":null,"maybe":null,"shape":[2,3],)"
                      R"("empty":{},"none":[],"list":[{"a":1},"b"]})");
  assert_string_equal(indented.take().c_str(), nlohmann::ordered_json::parse(text).dump(2).c_str());
}

void doubles_are_read_as_the_same_doubles(void**) {
  assert_string_equal(written(0.0).c_str(), "0.0");
  assert_string_equal(written(-0.0).c_str(), "-0.0");
  assert_string_equal(written(1e300).c_str(), "1e+300");
  assert_string_equal(written(std::nan("")).c_str(), "null");
  assert_string_equal(written(std::numeric_limits<double>::infinity()).c_str(), "null");
  for (const double number : {0.1, -2.5e-308, 5e-324, 1.7976931348623157e308, 1.0 / 3, 123456789.0}) {
    const auto document = JsonDocument::parse(written(number));
    assert_true(document && document->root().real() == number && !document->root().integer());
  }
}

/// Output for any bytes, as from nlohmann's library.
void texts_are_utf8(void**) {
  assert_string_equal(json_quoted("a\"b\\c\n\t\x01\x7f").c_str(), "\"a\\\"b\\\\c\\n\\t\\u0001\x7f\"");
  assert_string_equal(json_quoted("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80").c_str(),
                      "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"");
  uint32_t random = 1;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (int i = 0; i < 6; ++i) text += static_cast<char>((random = random * 1664525 + 1013904223) >> 24);
    const auto read = nlohmann::json::parse(json_quoted(text), nullptr, false);
    assert_false(read.is_discarded());
    const std::string plain = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
    const auto kept = nlohmann::json::parse(plain).get<std::string>();
    std::string stripped = read.get<std::string>();  // the characters that both keep are equal
    for (size_t at; (at = stripped.find("\xef\xbf\xbd")) != std::string::npos;) stripped.erase(at, 3);
    assert_string_equal(stripped.c_str(), kept.c_str());
    assert_string_equal(as_utf8(text).c_str(), read.get<std::string>().c_str());
  }
  assert_int_equal(utf8_end("gr\xc3\xbc\xc3"), 4);
  assert_int_equal(utf8_end("gr\xc3\xbc"), 4);
}

void json_round_trips(void**) {
  JsonWriter json;
  write_sample(json);
  const auto document = JsonDocument::parse(json.take());
  assert_true(document.has_value());
  const JsonValue root = document->root();
  assert_true(root.is_object() && root.size() == 10);
  assert_true(root.find_text("name") == "w" && root.find_count("rows") == UINT64_MAX && root.find_integer("staleness") == -1);
  assert_false(root.find_integer("rows").has_value());  // out of its range
  assert_false(root.find_count("staleness").has_value());
  assert_false(root.find_text("rows").has_value());
  assert_false(root.find("missing").has_value());
  assert_true(std::isnan(root.find_real("nothing").value()));
  assert_true(root.find_array("shape")->counts() == std::vector<uint64_t>({2, 3}));
  assert_true(root.find_array("list")->size() == 2 && !root.find_array("list")->counts());
  assert_true((*root.find_array("list")->begin()).find_count("a") == 1);
  assert_true(root.find_object("empty")->size() == 0 && !root.find_object("none"));
  size_t members = 0;
  for (const JsonValue member : root) members += member.key().empty() ? 0 : 1;
  assert_int_equal(members, 10);
}

void invalid_json_is_refused(void**) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\"}", "{a:1}", "01", "1 2", "\"\xff\"", "\"\n\"", "nul", "[1e999]"})
    assert_false(JsonDocument::parse(text).has_value());
  for (const std::string_view text : {std::string_view("[]\0", 3), std::string_view("[]\0x", 4), std::string_view("\"\0\"", 3)})
    assert_false(JsonDocument::parse(text).has_value());
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  assert_true(JsonDocument::parse(nested(JsonDocument::kDeepest)).has_value());
  assert_false(JsonDocument::parse(nested(JsonDocument::kDeepest + 1)).has_value());
  assert_false(JsonDocument::parse(std::string(1 << 20, '[')).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(objects_and_arrays_nest), cmocka_unit_test(doubles_are_read_as_the_same_doubles),
      cmocka_unit_test(texts_are_utf8),          cmocka_unit_test(json_round_trips),
      cmocka_unit_test(invalid_json_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
