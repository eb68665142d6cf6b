// The execution of an all-reduce's schedule: what a message's header may say of the elements behind its payload.

#include <cstring>
#include <utility>
#include <vector>

#include "engine/collective/execution.hpp"
#include "engine/collective/topology.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv::collective;

constexpr uint64_t kElements = 32 << 10;  // 128 KiB, which are not gathered

/// Rank 0 of 2, with an array of ones and the number of contributors.
class Rank final : public Execution::Owner {
 public:
  Rank() : values_(kElements, 1), execution_(*this, value(), recursive_doubling_allreduce(0, 2, kElements + 1), 0, {}) {
    assert_true(execution_.advance().ok());
  }
  void send_chunk(int32_t, const Outgoing& chunk) override { sent.push_back(chunk); }
  void chunk_taken(const Chunk&) override {}

  /// Takes the other rank's twos and its number, 1, of which the header has the first `bytes`.
  mv::base::Status take(size_t bytes) {
    const std::vector<float> theirs(kElements, 2);
    const int64_t contributors = 1;
    Chunk chunk{{0, kElements + 1}, std::as_bytes(std::span(theirs)), nullptr, nullptr, {}};
    chunk.tail.size = bytes;
    std::memcpy(chunk.tail.data.data(), &contributors, std::min(bytes, sizeof contributors));
    execution_.received(1, std::move(chunk));
    return execution_.advance();
  }
  bool holds(float sum, int64_t contributors) const { return contributors_ == contributors && values_ == std::vector<float>(kElements, sum); }

  std::vector<Outgoing> sent;

 private:
  Value value() {
    Value value;
    value.add({reinterpret_cast<std::byte*>(values_.data()), kElements, MV_F32}, mv::math::Reduction::kSum);
    value.add({reinterpret_cast<std::byte*>(&contributors_), 1, MV_I64}, mv::math::Reduction::kSum);
    return value;
  }
  std::vector<float> values_;
  int64_t contributors_ = 1;
  Execution execution_;
};

void the_contributors_travel_in_the_header(void**) {
  Rank rank;
  assert_int_equal(rank.sent.size(), 1);
  assert_int_equal(rank.sent.front().range.count, kElements + 1);
  assert_int_equal(rank.sent.front().payload->size(), kElements * sizeof(float));
  assert_int_equal(rank.sent.front().tail.size, sizeof(int64_t));
  assert_true(rank.take(sizeof(int64_t)).ok());
  assert_true(rank.holds(3, 2));
}

void a_header_with_other_bytes_is_refused(void**) {
  for (const size_t bytes : {size_t{0}, size_t{4}, kTailBytes, kTailBytes + 1, SIZE_MAX}) {
    Rank rank;
    assert_int_equal(rank.take(bytes).code(), MV_EPROTOCOL);
    assert_true(rank.holds(1, 1));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(the_contributors_travel_in_the_header), cmocka_unit_test(a_header_with_other_bytes_is_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
