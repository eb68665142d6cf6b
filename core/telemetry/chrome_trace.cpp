#include "telemetry/chrome_trace.hpp"

#include <fmt/core.h>

#include "base/json_writer.hpp"

namespace mv::telemetry {

namespace {

/// Microseconds, with nanosecond precision.
std::string micros(base::Nanos span) {
  const int64_t nanos = span.count() > 0 ? span.count() : 0;
  return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
}

}  // namespace

ChromeTrace::ChromeTrace(int64_t rank, std::string_view process_name, base::Nanos origin, base::Nanos origin_since_1970)
    : rank_(rank), origin_(origin), origin_since_1970_(origin_since_1970) {
  text_ = R"({"displayTimeUnit": "ns", "traceEvents": [)";
  metadata("process_name", 0, fmt::format(R"("name": {})", base::json_quoted(process_name)));
  metadata("process_sort_index", 0, fmt::format(R"("sort_index": {})", rank));
}

void ChromeTrace::begin_event() {
  text_ += any_ ? ",\n" : "\n";
  any_ = true;
}

void ChromeTrace::metadata(std::string_view what, uint64_t track, std::string_view argument) {
  begin_event();
  text_ += fmt::format(R"({{"ph": "M", "pid": {}, "tid": {}, "name": "{}", "args": {{{}}}}})", rank_, track, what, argument);
}

void ChromeTrace::track(uint64_t track, std::string_view name) {
  metadata("thread_name", track, fmt::format(R"("name": {})", base::json_quoted(name)));
  metadata("thread_sort_index", track, fmt::format(R"("sort_index": {})", track));
}

void ChromeTrace::slice(uint64_t track, std::string_view name, base::Nanos begin, base::Nanos end, std::string_view arguments) {
  begin_event();
  text_ += fmt::format(R"({{"ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "name": "{}", "args": {{{}}}}})", rank_, track,
                 micros(begin - origin_), micros(end - begin), name, arguments);
}

void ChromeTrace::seen(uint64_t flow, uint64_t from, base::Nanos changed, uint64_t to, base::Nanos answered) {
  flow_end('s', from, flow, changed, "seen");
  flow_end('f', to, flow, answered, "seen");
}

void ChromeTrace::flow_end(char phase, uint64_t track, uint64_t flow, base::Nanos at, std::string_view name) {
  begin_event();
  text_ += fmt::format(R"({{"ph": "{}", "pid": {}, "tid": {}, "ts": {}, "cat": "{}", "name": "{}", "id": "{:x}"{}}})",
                 phase, rank_, track, micros(at - origin_), name, name, flow, phase == 'f' ? R"(, "bp": "e")" : "");
}

void ChromeTrace::span(std::string_view category, uint64_t id, std::string_view name, base::Nanos begin, base::Nanos end, std::string_view arguments) {
  for (const bool begins : {true, false}) {
    begin_event();
    text_ += fmt::format(R"({{"ph": "{}", "pid": {}, "tid": 0, "ts": {}, "cat": "{}", "id": "{}.{}", "name": "{}", "args": {{{}}}}})",
                   begins ? 'b' : 'e', rank_, micros((begins ? begin : end) - origin_), category, rank_, id, name, begins ? arguments : "");
  }
}

void ChromeTrace::instant(std::string_view category, std::string_view name, base::Nanos at, std::string_view arguments) {
  begin_event();
  text_ += fmt::format(R"({{"ph": "i", "s": "p", "pid": {}, "tid": 0, "ts": {}, "cat": "{}", "name": {}, "args": {{{}}}}})", rank_, micros(at - origin_),
                 category, base::json_quoted(name), arguments);
}

std::string ChromeTrace::take() {
  text_ += fmt::format("\n],\n\"otherData\": {{\"rank\": {}, \"host\": {}, \"origin_nanoseconds_since_1970\": \"{}\"}}}}\n", rank_,
                       base::json_quoted(host_), origin_since_1970_.count());
  return std::move(text_);
}

}  // namespace mv::telemetry
