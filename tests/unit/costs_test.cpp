// engine/collective/cost_text and cost_fit: costs as a line of text, and fitted to the times of operations.

#include <cmath>
#include <string>
#include <vector>

#include "engine/collective/cost_fit.hpp"
#include "engine/collective/cost_text.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::collective;
using mv::base::TransportKind;

void a_line_of_costs_round_trips(void**) {
  Costs costs;
  costs.transports = {{{1.25e-7, 0}, {3.3e-6, 1.0 / 3}, {0.5, 1e-300}}};
  costs.gamma = 7.1e-11;
  const auto read = read_costs(write_costs(costs));
  assert_true(read.ok() && read.value() == costs);
  assert_true(read_costs(write_costs({})).value() == Costs{});
  assert_string_equal(write_cost(TransportKind::kShm, {5e-6, 2.5e-10}).c_str(), "shm=5e-06,2.5e-10");
}

void omitted_costs_stay_unchanged(void**) {
  assert_true(read_costs("").value() == Costs{} && read_costs(" \t\n").value() == Costs{});
  Costs expected;
  expected.transports[static_cast<size_t>(TransportKind::kTcp)] = {25e-6, 1e-9};
  assert_true(read_costs("  tcp=0.000025,1e-9 ").value() == expected);
  expected.gamma = 0;
  assert_true(read_costs("reduce=0\ttcp=2.5e-5,1e-9").value() == expected);
  assert_true(read_costs("reduce=0", expected).value() == expected);
}

void refuse(const char* line, const char* part) {
  const auto read = read_costs(line);
  assert_false(read.ok());
  assert_int_equal(read.status().code(), MV_EINVAL);
  if (read.status().text().find(part) == std::string::npos) fail_msg("%s\n  lacks %s", read.status().text().c_str(), part);
}

void errors_name_the_wrong_value(void**) {
  refuse("udp=1,1", "unknown cost \"udp\"; known: inproc, shm, tcp, ucx, mpi, reduce");
  refuse("=1,1", "unknown cost \"\"");
  refuse("shm", "shm has no value; write shm=ALPHA,BETA");
  refuse("reduce", "write reduce=GAMMA");
  refuse("shm=1e-6", "shm=1e-6: expected two numbers, ALPHA,BETA");
  refuse("tcp=fast,1e-9", "tcp=fast,1e-9: alpha is \"fast\", which is not a number");
  refuse("tcp=1e-6,", "beta is \"\", which is not a number");
  refuse("tcp=1e-6,1e-9,1", "beta is \"1e-9,1\", which is not a number");
  refuse("tcp=-1e-6,1e-9", "alpha is outside 0 .. 10 seconds");
  refuse("tcp=25,9e-10", "alpha is outside 0 .. 10 seconds");
  refuse("tcp=1,inf", "beta is outside");
  refuse("reduce=nan", "gamma is outside");
  refuse("shm=1,1 tcp=1,1 shm=1,1", "shm is given twice");
}

// ------------------------------------------------------------ the fit

std::vector<Sample> made_of(const TransportCost& cost, double noise = 0) {
  std::vector<Sample> samples;
  for (const double bytes : {64.0, 4096.0, 65536.0, 1048576.0, 4194304.0})
    for (const double messages : {1.0, 2.0}) {
      noise = -noise;
      samples.push_back({messages, bytes, (messages * cost.alpha + bytes * cost.beta) * (1 + noise)});
    }
  return samples;
}

bool is_near(double value, double expected, double tolerance) { return std::fabs(value - expected) <= tolerance * expected; }

void times_by_the_model_give_its_costs(void**) {
  for (const TransportCost cost : {TransportCost{3e-6, 1e-10}, TransportCost{25e-6, 0.9e-9}, TransportCost{2e-3, 80e-9}}) {
    const Fit found = fit(made_of(cost));
    assert_true(is_near(found.cost.alpha, cost.alpha, 1e-6) && is_near(found.cost.beta, cost.beta, 1e-6) && found.error < 1e-6);
    const Fit rough = fit(made_of(cost, 0.1));
    assert_true(is_near(rough.cost.alpha, cost.alpha, 0.2) && is_near(rough.cost.beta, cost.beta, 0.2));
    assert_true(rough.error > 0.05 && rough.error < 0.15);
  }
}

void no_cost_is_negative(void**) {
  const std::vector<Sample> falling = {{1, 100, 9e-6}, {1, 1e6, 5e-6}};
  assert_true(fit(falling).cost.beta == 0 && fit(falling).cost.alpha > 5e-6 && fit(falling).cost.alpha < 9e-6);
  const std::vector<Sample> steep = {{1, 1000, 1e-6}, {1, 2000, 3e-6}};
  assert_true(fit(steep).cost.alpha == 0 && fit(steep).cost.beta > 1e-9 && fit(steep).cost.beta < 1.5e-9);
}

void too_few_samples_are_no_more_than_they_say(void**) {
  assert_true(fit({}).cost == TransportCost{} && fit({}).error == 0);
  const std::vector<Sample> one = {{2, 0, 8e-6}};
  assert_true(is_near(fit(one).cost.alpha, 4e-6, 1e-9) && fit(one).cost.beta == 0);
  const std::vector<Sample> none = {{1, 8, 0}, {1, 8, -1}};
  assert_true(fit(none).cost == TransportCost{});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_line_of_costs_round_trips),
      cmocka_unit_test(omitted_costs_stay_unchanged),
      cmocka_unit_test(errors_name_the_wrong_value),
      cmocka_unit_test(times_by_the_model_give_its_costs),
      cmocka_unit_test(no_cost_is_negative),
      cmocka_unit_test(too_few_samples_are_no_more_than_they_say),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
