// engine/checkpoint/clocks: the payload of checkpoint messages, and invalid payloads.

#include <cstring>
#include <string>
#include <vector>

#include "engine/checkpoint/clocks.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

void clocks_round_trip(void**) {
  checkpoint::Clocks clocks{{"", 1}, {"weights", UINT64_MAX}, {std::string("a\0b", 3), 0}};
  for (int i = 0; i < 100'000; ++i) clocks.emplace("key-" + std::to_string(i), i);
  assert_true(checkpoint::read_clocks(checkpoint::write_clocks(clocks).value()->bytes()) == clocks);
  assert_true(checkpoint::write_clocks({}).value() == nullptr);
  assert_true(checkpoint::read_clocks({}) == checkpoint::Clocks());
}

void more_than_a_message_carries_is_refused(void**) {
  checkpoint::Clocks clocks;
  for (int i = 0; i < 100'000; ++i) clocks.emplace("key-" + std::string(200, 'x') + std::to_string(i), i);
  const auto written = checkpoint::write_clocks(clocks);
  assert_false(written.ok());
  assert_int_equal(written.status().code(), MV_EINVAL);
}

void truncated_clocks_are_refused(void**) {
  const auto whole = checkpoint::write_clocks({{"weights", 7}, {"x", 8}}).value();
  const auto bytes = whole->bytes();
  const size_t first = 4 + 8 + 7;
  for (size_t size = 1; size < bytes.size(); ++size) assert_int_equal(checkpoint::read_clocks(bytes.first(size)).has_value(), size == first);
  std::vector<std::byte> lying(bytes.begin(), bytes.end());
  const uint32_t length = UINT32_MAX;
  std::memcpy(lying.data(), &length, sizeof length);
  assert_false(checkpoint::read_clocks(lying).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(clocks_round_trip),
      cmocka_unit_test(more_than_a_message_carries_is_refused),
      cmocka_unit_test(truncated_clocks_are_refused),
  };
  return cmocka_run_group_tests_name("ps/clocks", tests, nullptr, nullptr);
}
