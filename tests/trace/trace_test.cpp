// tools/trace: clocks from messages, and where the time goes.

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "trace/clocks.hpp"
#include "trace/explain.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using Json = nlohmann::json;
using mv::tools::Clock;

/// Events of processes whose clocks are wrong in a known way.
class Clocks {
 public:
  explicit Clocks(unsigned seed) : random_(seed) {}
  void set(int64_t process, double offset, double drift) { wrong_[process] = {offset, drift}; }
  double local(int64_t process, double time) const {
    const auto& [offset, drift] = wrong_.at(process);
    return time + offset + drift * time;
  }
  /// A message that takes at least 40 us.
  void message(int64_t from, int64_t to, double time) {
    std::exponential_distribution<double> more(1.0 / 200);
    const std::string id = std::to_string(++messages_);
    events.push_back({{"ph", "s"}, {"cat", "message"}, {"pid", from}, {"id", id}, {"ts", local(from, time)}});
    events.push_back({{"ph", "f"}, {"cat", "message"}, {"pid", to}, {"id", id}, {"ts", local(to, time + 40 + more(random_))}});
  }
  void talk(int64_t a, int64_t b, double seconds) {
    for (double time = 0; time < seconds * 1e6; time += 10'000) {
      message(a, b, time);
      message(b, a, time + 3000);
    }
  }
  Json events = Json::array();

 private:
  std::mt19937 random_;
  std::map<int64_t, std::pair<double, double>> wrong_;
  int messages_ = 0;
};

void clocks_are_found_within_their_error(void**) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    Clocks clocks(seed);
    clocks.set(0, 0, 0);
    clocks.set(1, 5000, 40e-6);
    clocks.set(2, -3.6e9, -100e-6);  // an hour behind; it talks with process 1 only
    clocks.set(3, 0, 0);
    clocks.set(4, 0, 0);
    clocks.talk(0, 1, 60);
    clocks.talk(1, 2, 60);
    const std::map<int64_t, std::string> hosts = {{0, "a"}, {1, "b"}, {2, "c"}, {3, "d"}, {4, "a"}};
    const auto found = mv::tools::clocks_of(hosts, clocks.events);
    for (const int64_t process : {1, 2}) {
      const Clock& clock = found.at(process);
      assert_true(clock.known && clock.error > 0 && clock.error < 150);
      for (const double time : {1e6, 30e6, 59e6}) assert_true(std::abs(clock.common(clocks.local(process, time)) - time) <= clock.error + 30);
      assert_true(std::abs(clock.drift - (process == 1 ? 40e-6 : -100e-6)) < 5e-6);
    }
    assert_false(found.at(3).known);
    assert_true(found.at(4).known && found.at(4).common(7) == 7);
  }
}

void one_way_traffic_compares_no_clocks(void**) {
  Clocks clocks(1);
  clocks.set(0, 0, 0);
  clocks.set(1, 5000, 0);
  clocks.message(0, 1, 100);
  const auto found = mv::tools::clocks_of({{0, "a"}, {1, "b"}}, clocks.events);
  assert_false(found.at(1).known);
  assert_true(found.at(1).common(100) == 100);
}

void a_short_trace_has_no_drift(void**) {
  Clocks clocks(1);
  clocks.set(0, 0, 0);
  clocks.set(1, 5000, 0);
  clocks.talk(0, 1, 0.1);
  const Clock clock = mv::tools::clocks_of({{0, "a"}, {1, "b"}}, clocks.events).at(1);
  assert_true(clock.drift == 0 && std::abs(clock.offset - 5000) <= clock.error);
}

// ---- explain

class Events {
 public:
  Events() {
    for (int rank = 0; rank < 3; ++rank)
      all.push_back({{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", "worker " + std::to_string(rank)}}}});
  }
  void span(int rank, const char* kind, double begin, double end, Json arguments = Json::object()) {
    for (const char* phase : {"b", "e"})
      all.push_back(
          {{"ph", phase}, {"pid", rank}, {"cat", kind}, {"name", kind}, {"ts", *phase == 'b' ? begin : end}, {"args", std::move(arguments)}});
  }
  /// Every process begins and ends with the same.
  void frame(double end) {
    for (int rank = 0; rank < 3; ++rank) span(rank, "call", 0, end);
  }
  Json all = Json::array();
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

void the_one_who_holds_up_the_others_is_named(void**) {
  Events events;
  events.frame(1e6);
  for (const int rank : {0, 1}) {
    events.span(rank, "blocked", 100'000, 900'000);
    events.span(2, "gate", 100'000, 900'000, {{"of_rank", rank}, {"by_rank", 2}});
  }
  events.span(2, "blocked", 0, 100'000);
  const std::string text = mv::tools::explain(events.all);
  assert_true(has(text, "1 s of 3 processes"));
  assert_true(has(text, "compute   43.3 %") && has(text, "worker 2 90 %"));
  assert_true(has(text, "wait      53.3 %  53.3 % for worker 2"));
  assert_true(has(text, "transfer   3.3 %"));
  assert_true(has(text, "worker 2 holds up the others, and computes 90 % of the time"));
}

/// 0 waits for 1, which waits for 2: the cause is 2.
void a_chain_of_waits_ends_at_its_cause(void**) {
  Events events;
  events.frame(1e6);
  for (const int rank : {0, 1}) {
    events.span(rank, "group", 0, 800'000, {{"for_rank", rank + 1}, {"waited_us", 800'000}});
  }
  events.span(2, "group", 800'000, 800'100);
  const std::string text = mv::tools::explain(events.all);
  assert_true(has(text, "53.3 % for worker 2") && !has(text, "for worker 1"));
}

/// Each moment counts once, also where spans and waits overlap.
void shares_add_up(void**) {
  Events events;
  events.frame(1e6);
  events.span(0, "blocked", 0, 600'000);
  events.span(0, "blocked", 500'000, 700'000);
  events.span(2, "gate", 100'000, 300'000, {{"of_rank", 0}, {"by_rank", 2}});
  events.span(1, "gate", 200'000, 300'000, {{"of_rank", 0}, {"by_rank", 1}});
  const std::string text = mv::tools::explain(events.all);
  assert_true(has(text, "1 process,") && has(text, "compute   30.0 %") && has(text, "wait      20.0 %") && has(text, "transfer  50.0 %"));
}

/// The process where it is held up sees it, and may have kept less than it lasts.
void a_wait_that_goes_on_is_a_wait(void**) {
  Events events;
  events.frame(1e6);
  events.span(0, "blocked", 100'000, 1e6, {{"open", true}});
  events.span(2, "open wait", -5e6, 1e6, {{"of", ""}, {"of_rank", 0}, {"by", ""}, {"by_rank", 1}, {"open", true}});
  events.span(1, "blocked", 0, 100'000);
  events.span(2, "blocked", 0, 100'000);
  const std::string text = mv::tools::explain(events.all);
  assert_true(has(text, "1 s of 3 processes"));
  assert_true(has(text, "wait      30.0 %  30.0 % for worker 1") && has(text, "compute   63.3 %"));
}

void nothing_to_explain(void**) {
  assert_true(has(mv::tools::explain(Json::array()), "nothing to explain"));
  Events events;
  events.frame(1e6);
  assert_true(has(mv::tools::explain(events.all), "nothing to explain"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(clocks_are_found_within_their_error),
      cmocka_unit_test(one_way_traffic_compares_no_clocks),
      cmocka_unit_test(a_short_trace_has_no_drift),
      cmocka_unit_test(the_one_who_holds_up_the_others_is_named),
      cmocka_unit_test(a_chain_of_waits_ends_at_its_cause),
      cmocka_unit_test(shares_add_up),
      cmocka_unit_test(a_wait_that_goes_on_is_a_wait),
      cmocka_unit_test(nothing_to_explain),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
