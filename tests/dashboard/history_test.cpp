// tools/dashboard: the history keeps an hour in bounded memory.

#include <nlohmann/json.hpp>
#include <string>

#include "dashboard/history.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::tools::History;
using Json = nlohmann::json;

Json member(int worker, double sent) { return {{"rank", worker}, {"worker", worker}, {"server", nullptr}, {"sent_bytes_per_second", sent}}; }
Json told(const History& history, int64_t since = 0) { return Json::parse(history.to_json(since)); }

void a_slot_is_the_mean_of_its_values(void**) {
  History history;
  for (int second = 0; second <= 10; ++second) history.add(second, {{"members", {member(3, second)}}});
  const Json all = told(history);
  assert_int_equal(all["first"], 0);
  assert_int_equal(all["series"].size(), 1);
  const Json& series = all["series"][0];
  assert_true(series["kind"] == "traffic" && series["chart"] == "sent" && series["line"] == "worker 3");
  assert_true(series["values"] == Json({2.0, 7.0, 10.0}));
  assert_true(told(history, 1)["series"][0]["values"] == Json({7.0, 10.0}));
}

void seconds_without_values_are_null(void**) {
  History history;
  history.add(0, {{"members", {member(0, 1)}}});
  history.add(17, {{"members", {member(0, 4)}}});
  history.add(20, {{"members", {member(0, 4)}}});
  assert_true(told(history)["series"][0]["values"] == Json({1.0, nullptr, nullptr, 4.0, 4.0}));
}

void a_day_of_a_cluster_keeps_one_hour(void**) {
  History history;
  for (int second = 0; second < 24 * 3600; ++second) {
    // Every minute, another member and another report.
    Json one = member(second / 60, 1);
    one["reports"] = {{{"name", "loss " + std::to_string(second / 60)}, {"value", second}}};
    history.add(second, {{"members", {one}}});
    assert_true(history.series() <= 2 * 62);
  }
  const Json all = told(history);
  for (const Json& series : all["series"]) assert_int_equal(series["values"].size(), History::kSlots + 1);
}

void more_series_than_allowed_are_left_out(void**) {
  History history;
  Json members = Json::array();
  for (int worker = 0; worker < 5000; ++worker) members.push_back(member(worker, 1));
  history.add(0, {{"members", members}});
  assert_int_equal(history.series(), History::kMostSeries);
  assert_int_equal(told(history)["left_out"], 5000 - History::kMostSeries);
}

void hostile_values_are_ignored(void**) {
  History history;
  const char* hostile = R"({"members": [{"rank": "x", "sent_bytes_per_second": "y", "reports": 7}, {"reports": [{"name": [], "value": {}}]}],
                            "tables": {}})";
  history.add(0, Json::parse(hostile));
  assert_int_equal(history.series(), 0);
  history.add(1, {{"members", {{{"worker", 1}, {"reports", {{{"name", std::string(5000, 'x')}, {"value", 1}}}}}}}});
  history.add(6, Json::object());
  assert_int_equal(told(history)["series"][0]["chart"].get<std::string>().size(), History::kLongestName);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_slot_is_the_mean_of_its_values),      cmocka_unit_test(seconds_without_values_are_null),
      cmocka_unit_test(a_day_of_a_cluster_keeps_one_hour),     cmocka_unit_test(more_series_than_allowed_are_left_out),
      cmocka_unit_test(hostile_values_are_ignored),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
