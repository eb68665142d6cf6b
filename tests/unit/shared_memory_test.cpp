// Memory that several processes map: write permissions, refusals, and lookup.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <cstdarg>
#include <cstring>
#include <vector>

#include "base/pool.hpp"
#include "base/shared_memory.hpp"

extern "C" {
#include <cmocka.h>
}

using mv::base::Pool;
using mv::base::SharedMemory;

static void one_process_reads_the_others_writes(void**) {
  const auto made = SharedMemory::make("test", 10'000);
  assert_true(made.ok());
  const auto seen = SharedMemory::adopt(dup(made.value()->fd()), 10'000);
  assert_true(seen.ok());
  std::strcpy(reinterpret_cast<char*>(made.value()->data()) + 9'000, "hello");
  assert_string_equal(reinterpret_cast<const char*>(seen.value()->data()) + 9'000, "hello");
}

static void adopted_memory_holds_no_descriptor(void**) {
  const auto made = SharedMemory::make("test", 4096);
  const int passed = dup(made.value()->fd());
  auto seen = SharedMemory::adopt(passed, 4096);
  assert_true(seen.ok());
  assert_int_equal(fcntl(passed, F_GETFD), -1);
  const int reused = dup(STDOUT_FILENO);
  assert_int_equal(reused, passed);
  seen = SharedMemory::make("another", 4096);
  assert_int_not_equal(fcntl(reused, F_GETFD), -1);  // the number is no longer the memory's
  close(reused);
}

static void only_the_owner_writes_and_resizes(void**) {
  const auto made = SharedMemory::make("test", 4096);
  assert_true(made.ok());
  const int fd = made.value()->fd();
  assert_ptr_equal(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  assert_int_equal(ftruncate(fd, 0), -1);
  assert_int_equal(ftruncate(fd, 8192), -1);
}

static void resizable_or_too_small_memory_is_refused(void**) {
  const int open_ended = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(ftruncate(open_ended, 4096), 0);
  assert_int_equal(SharedMemory::adopt(open_ended, 100).status().code(), MV_EPROTOCOL);
  assert_int_equal(fcntl(open_ended, F_GETFD), -1);  // the descriptor was closed nevertheless
  const auto small = SharedMemory::make("test", 4096);
  assert_int_equal(SharedMemory::adopt(dup(small.value()->fd()), 4097).status().code(), MV_EPROTOCOL);
}

static void enlisted_memory_is_found_as_long_as_it_lives(void**) {
  auto memory = SharedMemory::make("test", 8192).value();
  const std::byte* at = memory->data();
  assert_null(SharedMemory::find({at, 10}).get());
  SharedMemory::enlist(memory);
  assert_ptr_equal(SharedMemory::find({at + 8000, 192}).get(), memory.get());
  assert_null(SharedMemory::find({at + 8000, 193}).get());
  assert_null(SharedMemory::find({at - 1, 2}).get());
  memory.reset();
  assert_null(SharedMemory::find({at, 10}).get());
}

static void blocks_of_a_shared_pool_are_found_and_come_again(void**) {
  constexpr size_t kBytes = 1 << 20;
  Pool pool(kBytes, 2, Pool::Blocks::kShared);
  const std::byte* at = nullptr;
  {
    const Pool::Block block = pool.take(kBytes), small = pool.take(100);
    assert_non_null(SharedMemory::find(block.bytes).get());
    assert_null(SharedMemory::find(small.bytes).get());
    at = block.bytes.data();
  }
  assert_ptr_equal(pool.take(kBytes - 1).bytes.data(), at);
}

static void a_shared_pool_does_not_use_up_the_descriptors(void**) {
  Pool pool(64 << 10, 2, Pool::Blocks::kShared);
  size_t shared = 0;
  std::vector<Pool::Block> blocks;
  for (int i = 0; i < 300; ++i) {
    blocks.push_back(pool.take(64 << 10));
    std::memset(blocks.back().bytes.data(), i, 64 << 10);
    shared += SharedMemory::find(blocks.back().bytes) != nullptr ? 1 : 0;
  }
  assert_int_equal(shared, 128);
  blocks.clear();
  assert_non_null(SharedMemory::find(pool.take(64 << 10).bytes).get());
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(blocks_of_a_shared_pool_are_found_and_come_again),
      cmocka_unit_test(a_shared_pool_does_not_use_up_the_descriptors),
      cmocka_unit_test(one_process_reads_the_others_writes),
      cmocka_unit_test(adopted_memory_holds_no_descriptor),
      cmocka_unit_test(only_the_owner_writes_and_resizes),
      cmocka_unit_test(resizable_or_too_small_memory_is_refused),
      cmocka_unit_test(enlisted_memory_is_found_as_long_as_it_lives),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
