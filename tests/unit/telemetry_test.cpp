// Metrics in Prometheus's text format, events in Chrome's JSON format, and their sources.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "base/histogram.hpp"
#include "base/trace.hpp"
#include "telemetry/chrome_trace.hpp"
#include "telemetry/exposition.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace std::chrono_literals;
namespace base = mv::base;
using mv::telemetry::ChromeTrace;
using mv::telemetry::Exposition;

void values_of_labels_are_escaped(void**) {
  Exposition out;
  out.counter("things_total", "How many.");
  out.sample({{"name", "a \"b\" \\ c\nd"}, {"other", ""}}, uint64_t{18'446'744'073'709'551'615u});
  assert_string_equal(out.take().c_str(),
                      "# HELP polyverso_things_total How many.\n# TYPE polyverso_things_total counter\n"
                      "polyverso_things_total{name=\"a \\\"b\\\" \\\\ c\\nd\",other=\"\"} 18446744073709551615\n");
}

void numbers_are_written_so_that_they_are_read_again(void**) {
  Exposition out;
  out.gauge("g", "h");
  for (const double value : {0.1, 1e-9, 123456789.25, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) out.sample({}, value);
  const std::string text = out.take();
  assert_non_null(std::strstr(text.c_str(), "\npolyverso_g 0.1\npolyverso_g 1e-09\npolyverso_g 123456789.25\npolyverso_g +Inf\npolyverso_g -Inf\n"));
}

void spans_are_counted_in_their_class(void**) {
  base::Histogram times;
  times.record(-5ns);
  times.record(0ns);
  times.record(1us);
  times.record(1001ns);
  times.record(2us);
  times.record(std::chrono::hours(1));
  assert_int_equal(times.counts[0], 3);
  assert_int_equal(times.counts[1], 2);
  assert_int_equal(times.counts[base::Histogram::kClasses], 1);
  assert_int_equal(times.count(), 6);
  assert_true(times.sum == std::chrono::hours(1) + 4001ns);
  for (size_t i = 0; i < base::Histogram::kClasses; ++i) {  // a span is never above its class's limit
    base::Histogram one;
    const base::Nanos limit(static_cast<int64_t>(std::llround(base::Histogram::limit(i) * 1e9)));
    one.record(limit);
    one.record(limit + 1ns);
    assert_int_equal(one.counts[i], 1);
    assert_int_equal(one.counts[i + 1], 1);
  }
}

void a_histogram_is_cumulative(void**) {
  base::Histogram times;
  times.record(3us);
  times.record(100us);
  Exposition out;
  out.histogram("seconds", "h");
  out.sample({{"call", "add"}}, times);
  const std::string text = out.take();
  for (const char* line : {"polyverso_seconds_bucket{call=\"add\",le=\"2e-06\"} 0\n", "polyverso_seconds_bucket{call=\"add\",le=\"4e-06\"} 1\n",
                           "polyverso_seconds_bucket{call=\"add\",le=\"0.000128\"} 2\n", "polyverso_seconds_bucket{call=\"add\",le=\"+Inf\"} 2\n",
                           "polyverso_seconds_sum{call=\"add\"} 0.000103\n", "polyverso_seconds_count{call=\"add\"} 2\n"})
    assert_non_null(std::strstr(text.c_str(), line));
}

base::TraceEvent event(uint64_t number) {
  return {number, number, 1, number, 0, base::TraceKind::kCall, 0};
}

void a_ring_keeps_the_last_in_their_order(void**) {
  base::TraceRing ring(4);
  assert_int_equal(ring.copy().size(), 0);
  for (uint64_t number = 1; number <= 3; ++number) ring.note(event(number));
  assert_int_equal(ring.copy().size(), 3);
  for (uint64_t number = 4; number <= 10; ++number) ring.note(event(number));
  const auto events = ring.copy();
  assert_int_equal(events.size(), 4);
  for (size_t i = 0; i < 4; ++i) assert_int_equal(events[i].seq, 7 + i);
  base::TraceRing none(0);
  none.note(event(1));
  assert_false(none.on());
  assert_int_equal(none.copy().size(), 0);
}

void ticks_are_time(void**) {
  const base::TickClock clock;
  const auto begun = std::chrono::steady_clock::now();
  const uint64_t first = clock.read();
  while (std::chrono::steady_clock::now() - begun < 20ms) {
  }
  const uint64_t second = clock.read();
  const auto scale = clock.scale();
  const base::Nanos span = scale(second) - scale(first);
  assert_true(span >= 15ms && span < 10s);  // also on a slow machine
  assert_true(scale(first) >= begun.time_since_epoch() - 10ms);
}

void a_trace_is_json(void**) {
  ChromeTrace trace(3, "worker \"0\" \xff (rank 3)", 1000us, 1'700'000'000s);
  trace.track(7, "to server 0");
  trace.slice(7, "Get", 1001us, 1003500ns, R"("bytes": 12)");
  trace.leaves(7, 0xabcdef, 1001us);
  trace.arrives(7, 0xabcdef, 1002us);
  trace.span("call", 1, "get", 1000us, 2s, "");
  const auto json = nlohmann::json::parse(trace.take());
  assert_string_equal(json["otherData"]["origin_nanoseconds_since_1970"].get<std::string>().c_str(), "1700000000000000000");
  const auto& events = json["traceEvents"];
  assert_int_equal(events.size(), 2 + 2 + 1 + 2 + 2);
  const auto slice = *std::find_if(events.begin(), events.end(), [](const auto& e) { return e["ph"] == "X"; });
  assert_true(slice["ts"] == 1.0 && slice["dur"] == 2.5 && slice["pid"] == 3 && slice["tid"] == 7 && slice["args"]["bytes"] == 12);
  for (const auto& each : events) assert_int_equal(each["pid"].get<int>(), 3);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(values_of_labels_are_escaped),
      cmocka_unit_test(numbers_are_written_so_that_they_are_read_again),
      cmocka_unit_test(spans_are_counted_in_their_class),
      cmocka_unit_test(a_histogram_is_cumulative),
      cmocka_unit_test(a_ring_keeps_the_last_in_their_order),
      cmocka_unit_test(ticks_are_time),
      cmocka_unit_test(a_trace_is_json),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
