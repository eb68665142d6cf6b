// core/tensor/heap: allocation and release of tensor memory.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/shared_memory.hpp"
#include "tensor/heap.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using mv::tensor::Block;
using mv::tensor::Heap;

constexpr size_t kMiB = size_t{1} << 20;

std::shared_ptr<Block> take(Heap& heap, size_t bytes, Heap::Content content = Heap::Content::kAnything) {
  auto block = heap.allocate(bytes, content);
  assert_true(block.ok());
  return std::move(block).value();
}

void small_blocks_share_a_segment(void**) {
  Heap heap;
  std::vector<std::shared_ptr<Block>> blocks;
  for (size_t i = 0; i < 1000; ++i) blocks.push_back(take(heap, i));
  assert_int_equal(heap.use().segments, 1);
  for (size_t i = 0; i < blocks.size(); ++i) {
    assert_true(reinterpret_cast<uintptr_t>(blocks[i]->data()) % 64 == 0);
    assert_true(blocks[i]->bytes() >= i && blocks[i]->is_shared());
    std::memset(blocks[i]->data(), static_cast<int>(i % 251), blocks[i]->bytes());
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    for (size_t b = 0; b < blocks[i]->bytes(); ++b) assert_int_equal(static_cast<int>(blocks[i]->data()[b]), i % 251);
}

void a_transport_finds_allocated_memory(void**) {
  Heap heap;
  for (const size_t bytes : {size_t{100}, 3 * kMiB}) {
    const auto block = take(heap, bytes);
    const auto memory = mv::base::SharedMemory::find({block->data(), bytes});
    assert_non_null(memory.get());
    assert_true(memory->data() <= block->data());
  }
}

void freed_memory_joins_and_is_used_again(void**) {
  Heap heap;
  std::mt19937 random(1);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int round = 0; round < 20; ++round) {
    while (heap.use().bytes_given < 3 * kMiB) blocks.push_back(take(heap, random() % (64 << 10)));
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.resize(blocks.size() / 4);
    assert_true(heap.use().segments <= 2);
  }
  blocks.clear();
  assert_int_equal(heap.use().bytes_given, 0);
  assert_int_equal(heap.use().segments, 1);
  blocks.push_back(take(heap, kMiB));  // all pieces have been merged again
  blocks.push_back(take(heap, kMiB));
  blocks.push_back(take(heap, kMiB));
  blocks.push_back(take(heap, kMiB));
  assert_int_equal(heap.use().segments, 1);
}

void memory_reused_in_every_step_is_kept(void**) {
  Heap heap;
  size_t kept = 0;
  for (int step = 0; step < 3; ++step) {
    std::vector<std::shared_ptr<Block>> blocks;
    for (int i = 0; i < 32; ++i) blocks.push_back(take(heap, kMiB));
    blocks.clear();
    if (step > 0) assert_int_equal(heap.use().segments, kept);
    kept = heap.use().segments;
  }
  assert_int_equal(heap.use().bytes, 32 * kMiB);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(take(heap, kMiB));
  blocks.clear();
  assert_true(heap.use().bytes <= 64 * kMiB);
}

void zeros_are_zeros_again(void**) {
  Heap heap;
  for (const size_t bytes : {size_t{5000}, 2 * kMiB}) {
    for (int round = 0; round < 3; ++round) {
      const auto block = take(heap, bytes, Heap::Content::kZeros);
      assert_true(std::all_of(block->data(), block->data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::memset(block->data(), 0xff, block->bytes());
    }
  }
}

void a_large_segment_serves_requests_that_nearly_fill_it(void**) {
  Heap heap;
  std::byte* const first = take(heap, 8 * kMiB)->data();
  assert_true(take(heap, 7 * kMiB)->data() == first);
  assert_true(take(heap, 9 * kMiB)->data() != first);
  assert_true(take(heap, 2 * kMiB)->data() != first);
  { const auto beyond = take(heap, 200 * kMiB); }
  assert_true(heap.use().bytes <= 128 * kMiB);  // too much to keep
}

void blocks_outlive_their_heap(void**) {
  std::shared_ptr<Block> small, large;
  {
    Heap heap;
    small = take(heap, 10);
    large = take(heap, 2 * kMiB);
  }
  std::memset(small->data(), 1, small->bytes());
  std::memset(large->data(), 1, large->bytes());
}

void threads_allocate_at_once(void**) {
  Heap heap;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&heap, seed] {
      std::mt19937 random(seed);
      std::vector<std::shared_ptr<Block>> blocks;
      for (int i = 0; i < 2000; ++i) {
        auto block = heap.allocate(random() % 20000, Heap::Content::kAnything);
        std::memset(block.value()->data(), static_cast<int>(seed), block.value()->bytes());
        blocks.push_back(std::move(block).value());
        if (blocks.size() > 50) blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(random() % blocks.size()));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  assert_int_equal(heap.use().bytes_given, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(small_blocks_share_a_segment),
      cmocka_unit_test(a_transport_finds_allocated_memory),
      cmocka_unit_test(freed_memory_joins_and_is_used_again),
      cmocka_unit_test(memory_reused_in_every_step_is_kept),
      cmocka_unit_test(zeros_are_zeros_again),
      cmocka_unit_test(a_large_segment_serves_requests_that_nearly_fill_it),
      cmocka_unit_test(blocks_outlive_their_heap),
      cmocka_unit_test(threads_allocate_at_once),
  };
  return cmocka_run_group_tests_name("tensor/heap", tests, nullptr, nullptr);
}
