// base/filling: a copy whose pieces another thread takes while it is being made.

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/filling.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::base::Filling;

constexpr size_t kBytes = (10 << 20) + 123;

std::vector<std::byte> some_bytes() {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  return bytes;
}

Filling::Fill copier(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  return [&to, &from](size_t begin, size_t end) { std::memcpy(to.data() + begin, from.data() + begin, end - begin); };
}

void test_a_piece_is_whole_when_it_is_taken(void**) {
  const std::vector<std::byte> from = some_bytes();
  const std::vector<Filling::Range> ranges{{0, 3 << 20}, {3 << 20, (9 << 20) + 1}, {(9 << 20) + 1, kBytes}};
  std::vector<std::byte> to(kBytes);
  Filling filling(nullptr, ranges, copier(to, from));
  size_t wrong = 0;
  std::thread reader([&] {
    for (const auto& range : ranges)
      for (size_t at = range.begin; at < range.end; at += 300'000) {
        const size_t end = std::min<size_t>(at + 300'000, range.end);
        filling.wait_for(at, end);
        wrong += std::equal(to.begin() + static_cast<ptrdiff_t>(at), to.begin() + static_cast<ptrdiff_t>(end), from.begin() + static_cast<ptrdiff_t>(at)) ? 0 : 1;
      }
  });
  while (filling.copy_some()) std::this_thread::yield();
  reader.join();
  assert_int_equal(wrong, 0);
  assert_true(to == from);
}

void test_ranges_are_filled_side_by_side(void**) {
  const std::vector<std::byte> from = some_bytes();
  std::vector<std::byte> to(kBytes);
  const std::vector<Filling::Range> ranges{{0, 8 << 20}, {8 << 20, kBytes}};
  const auto pieces = Filling::pieces(ranges);
  size_t filled = 0;
  Filling filling(nullptr, ranges, [&](size_t begin, size_t end) {
    assert_true(begin == pieces[filled].begin && end == pieces[filled].end);
    ++filled;
    copier(to, from)(begin, end);
  });
  assert_true(filling.copy_some());
  filling.wait_for(0, 1 << 20);
  filling.wait_for(8 << 20, 9 << 20);
  assert_true(to[(8 << 20) + 5] == from[(8 << 20) + 5]);
  size_t more = 0;
  while (filling.copy_some()) ++more;
  assert_int_equal(more, 6);
  assert_int_equal(filled, pieces.size());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_piece_is_whole_when_it_is_taken),
      cmocka_unit_test(test_ranges_are_filled_side_by_side),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
