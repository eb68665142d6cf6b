// core/intranode: all algorithms of an all-reduce give the same bits, whoever tries what, and whatever the ranks' memory is.

#include <atomic>
#include <random>
#include <vector>

#include "intranode.hpp"
#include "sanitized.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::test;  // NOLINT: this file is one of its
using mv::intranode::Algorithm;
using mv::intranode::Choices;
using mv::intranode::Decision;
using mv::intranode::Tuning;

/// Values whose sums depend on the order of the additions.
float uneven_value(size_t rank, size_t i) {
  std::minstd_rand dice(static_cast<unsigned>(rank * 7919 + i + 1));
  dice();
  return static_cast<float>(dice() % 1'000'003) * (rank % 2 == 0 ? 1.0f : -0.1f) / 7.0f;
}

std::vector<float> expected_sums(size_t ranks, size_t count) {
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    sums[i] = uneven_value(0, i);
    for (size_t rank = 1; rank < ranks; ++rank) sums[i] += uneven_value(rank, i);
  }
  return sums;
}

/// One all-reduce of a rank. Returns the number of wrong elements.
size_t reduce(RankContext& context, size_t rank, Floats& in, Floats& out, bool in_place, const std::vector<float>& expected) {
  Floats& first = in_place ? out : in;
  for (size_t i = 0; i < expected.size(); ++i) first.data()[i] = uneven_value(rank, i);
  Operation sum{.kind = Kind::kAllreduce, .out = {{out.bytes(), expected.size(), MV_F32}}, .in = {}};
  if (!in_place) sum.in = {in.bytes()};
  if (!carry_out(context, sum).ok()) return expected.size() + 1;
  return std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)) == 0 ? 0 : 1;
}

void each_algorithm_gives_the_same_bits(void**) {
  for (size_t algorithm = 0; algorithm < mv::intranode::kAlgorithms; ++algorithm)
    for (const size_t ranks : {2, 3})
      for (const size_t count : {2049, 8193, 100'003, 350'000}) {
        if (ranks > 2 && count > 200'000) continue;
        Tuning tuning;
        tuning.named = static_cast<uint8_t>(algorithm);
        Ring ring(ranks, tuning);
        const std::vector<float> expected = expected_sums(ranks, count);
        std::atomic<size_t> wrong{0};
        ring.run([&](size_t rank, RankContext& context) {
          for (int memory = 0; memory < 4; ++memory) {
            const bool is_shown = memory % 2 == 1, in_place = memory >= 2;
            Floats in(count, is_shown), out(count, is_shown);
            for (size_t turn = 0; turn < turns(3, 1); ++turn) wrong += reduce(context, rank, in, out, in_place, expected);
          }
        });
        assert_int_equal(wrong, 0);
        for (const Decision& decision : ring.contexts[0]->decisions())
          assert_true(decision.why == (fits(static_cast<Algorithm>(algorithm), decision.of, ranks) ? Decision::Why::kNamed : Decision::Why::kFixed));
      }
}

/// All algorithms in turn, in groups whose ranks have different kinds of memory, while ranks sometimes disagree. All ranks end up with the same
/// choices, and each of their operations has the right bits.
void trials_agree_and_change_no_bit(void**) {
  for (const size_t ranks : {2, 3}) {
    Ring ring(ranks);
    constexpr size_t kCounts[] = {1'500, 5'000, 30'000};
    std::vector<std::vector<float>> expected;
    for (const size_t count : kCounts) expected.push_back(expected_sums(ranks, count));
    std::atomic<size_t> wrong{0};
    ring.run([&](size_t rank, RankContext& context) {
      std::mt19937 same(3), own(static_cast<unsigned>(rank));
      std::vector<std::unique_ptr<Floats>> in, out;
      for (const size_t count : kCounts)
        for (const bool is_shown : {false, true}) {
          in.push_back(std::make_unique<Floats>(count, is_shown));
          out.push_back(std::make_unique<Floats>(count, is_shown));
        }
      for (int turn = 0; turn < 1000; ++turn) {
        const size_t size = same() % std::size(kCounts);
        const bool alike = same() % 4 != 0, tensors = same() % 2 == 0, together = same() % 2 == 0;
        const size_t memory = 2 * size + (alike ? (tensors ? 1 : 0) : own() % 2);
        const bool in_place = alike ? together : own() % 2 == 0;
        if (same() % 16 == 0) {
          Operation different{.kind = Kind::kAllreduce, .out = {{out[memory]->bytes(), kCounts[size] - (rank == 1 ? 600 : 0), MV_F32}}, .in = {}};
          if (carry_out(context, different).code() != MV_EDISAGREE) ++wrong;
          if (same() % 2 == 0 && !carry_out(context, Operation{.kind = Kind::kBarrier, .out = {}, .in = {}}).ok()) ++wrong;
        }
        wrong += reduce(context, rank, *in[memory], *out[memory], in_place, expected[size]);
      }
    });
    assert_int_equal(wrong, 0);
    const auto first = ring.contexts[0]->decisions();
    assert_true(first.size() >= 6 && ring.contexts[0]->trials_ended() >= 4);
    for (const Decision& decision : first)
      assert_true(decision.why == Decision::Why::kTried || !mv::intranode::SizeClass::is_small(decision.of.most()));
    for (size_t rank = 1; rank < ranks; ++rank) {
      assert_int_equal(ring.contexts[rank]->trials_ended(), ring.contexts[0]->trials_ended());
      const auto theirs = ring.contexts[rank]->decisions();
      assert_int_equal(theirs.size(), first.size());
      for (size_t i = 0; i < first.size(); ++i)
        assert_true(theirs[i].of.index() == first[i].of.index() && theirs[i].algorithm == first[i].algorithm && theirs[i].scores == first[i].scores);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_algorithm_gives_the_same_bits),
      cmocka_unit_test(trials_agree_and_change_no_bit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
