// A loop over an absl::flat_hash_map of f64, in the process's own memory: the operations and the argument of key_worker.c.
#include <absl/container/flat_hash_map.h>

#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "programs/batch.h"
#include "programs/draws.h"
}

namespace {

struct Loop {
  absl::flat_hash_map<int64_t, double> map;
  const int64_t* draws = nullptr;
  uint64_t at = 0, count = 0;  // the next draw; keys of an add
  std::vector<double> ones;
  uint64_t added = 0;
};

void add(void* self, const int64_t* keys, uint64_t count) {
  auto* loop = static_cast<Loop*>(self);
  for (uint64_t i = 0; i < count; ++i) loop->map[keys[i]] += loop->ones[i];
  loop->added += count;
}

void prepare(void* self, const char* operation, uint64_t bytes) {
  auto* loop = static_cast<Loop*>(self);
  loop->count = bytes / sizeof(double);
  if (std::strcmp(operation, "add") != 0) batch_fail("absl_map: unknown operation %s", operation);
  if (loop->count == 0 || kDraws % loop->count != 0)
    batch_fail("absl_map: %d draws are not a multiple of the keys of an add", kDraws);
  loop->ones.assign(loop->count, 1);
  loop->at = 0;
}

void repeat(void* self, uint64_t times) {
  auto* loop = static_cast<Loop*>(self);
  for (uint64_t i = 0; i < times; ++i) {
    add(loop, loop->draws + loop->at, loop->count);
    loop->at = (loop->at + loop->count) % kDraws;
  }
}

void check(void* self) {
  const auto* loop = static_cast<const Loop*>(self);
  double sum = 0;
  for (const auto& [key, value] : loop->map) sum += value;
  if (sum != static_cast<double>(loop->added))
    batch_fail("after %llu adds of 1 the sum is %.17g", static_cast<unsigned long long>(loop->added), sum);
}

}  // namespace

int main(int count, char** words) {
  Loop loop;
  if (count == 2) {
    loop.ones.assign(kFill, 1);
    const draws_map map = {add, check, &loop};
    draws_fill(&map, std::strtoull(words[1], nullptr, 10));
  } else {
    loop.draws = draws_make();
    const batch_program program = {prepare, repeat, check, &loop, nullptr};
    batch_serve(&program);
  }
  return 0;
}
