// base/similar: which mistyped words find the one that was meant, and which find none.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/similar.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::base;

constexpr std::array<std::string_view, 6> kKnown = {"run", "server", "checkpoint", "timeout_ms", "init_timeout_ms", "trace"};

void expect(std::string_view word, std::string_view meant) {
  assert_string_equal(std::string(similar(word, kKnown)).c_str(), std::string(meant).c_str());
}

void one_slip_of_a_finger_is_forgiven(void**) {
  expect("rnu", "run");           // swapped
  expect("rn", "run");            // left out
  expect("runn", "run");          // doubled
  expect("sarver", "server");     // another letter
  expect("TRACE", "trace");       // case
  expect("chekcpiont", "checkpoint");
}

void a_beginning_that_only_one_word_has_is_enough(void**) {
  expect("check", "checkpoint");
  expect("timeout", "timeout_ms");
  expect("in", "");                                                              // too short
  const std::vector<std::string_view> two = {"momentum_sgd", "momentum_nag"};
  assert_true(similar("momentum", two).empty());                                 // ambiguous
}

void other_words_find_none(void**) {
  expect("", "");
  expect("x", "");
  expect("ls", "");
  expect("python3", "");
  expect(std::string(100'000, 'r'), "");
}

void distances_are_counted_in_slips(void**) {
  assert_int_equal(edit_distance("", ""), 0);
  assert_int_equal(edit_distance("", "abc"), 3);
  assert_int_equal(edit_distance("abc", ""), 3);
  assert_int_equal(edit_distance("kitten", "sitting"), 3);
  assert_int_equal(edit_distance("ab", "ba"), 1);
  assert_int_equal(edit_distance("ca", "abc"), 3);
}

void the_question_is_ready_for_a_message(void**) {
  assert_string_equal(did_you_mean("rnu", kKnown).c_str(), "; did you mean \"run\"?");
  assert_string_equal(did_you_mean("rnu", kKnown, "--").c_str(), "; did you mean \"--run\"?");
  assert_string_equal(did_you_mean("python3", kKnown).c_str(), "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_slip_of_a_finger_is_forgiven),
      cmocka_unit_test(a_beginning_that_only_one_word_has_is_enough),
      cmocka_unit_test(other_words_find_none),
      cmocka_unit_test(distances_are_counted_in_slips),
      cmocka_unit_test(the_question_is_ready_for_a_message),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
