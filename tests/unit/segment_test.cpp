// shard/segment: one process writes, others read without messages; each may be killed at any moment.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "shard/segment.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using namespace std::chrono_literals;
using shard::Segment;
using shard::SegmentReader;
using shard::StripeWrite;
using Clock = std::chrono::steady_clock;

shard::Spec matrix(uint64_t rows, uint64_t cols) {
  shard::Spec spec;
  spec.kind = MV_MATRIX;
  spec.rows = rows;
  spec.cols = cols;
  return spec;
}

constexpr uint64_t kRows = 2000, kCols = 500;  // four stripes, the last one short

/// Writes one value everywhere in a stripe.
void fill(const Segment& segment, const shard::Spec& spec, uint64_t stripe, float value) {
  const uint64_t each = shard::stripe_elements(spec), first = stripe * each;
  const uint64_t count = std::min(each, spec.elements() - first);
  float* values = reinterpret_cast<float*>(segment.values()) + first;
  const StripeWrite open(&segment, stripe);
  std::fill(values, values + count, value);
}

uint64_t stripes_of(const shard::Spec& spec) {
  return (spec.elements() + shard::stripe_elements(spec) - 1) / shard::stripe_elements(spec);
}

/// The test forks, and by default only a heap's shared memory stays mapped in a child.
void keep_in_children(const base::SharedMemory& memory) { madvise(memory.data(), memory.bytes(), MADV_DOFORK); }

std::shared_ptr<SegmentReader> reader_of(const Segment& segment, const shard::Spec& spec) {
  auto memory = base::SharedMemory::adopt(dup(segment.memory()->fd()), 1);
  assert_true(memory.ok());
  keep_in_children(*memory.value());
  auto reader = SegmentReader::open(std::move(memory).value(), spec, spec.elements());
  assert_true(reader.ok());
  return reader.value();
}

/// Reads until it is killed; exits with 3 if it reads a torn stripe or row. Writes a byte for every complete read.
[[noreturn]] void read_for_ever(const SegmentReader& reader, const shard::Spec& spec, int tell) {
  std::vector<float> out(spec.elements());
  std::vector<int64_t> ids;
  for (uint64_t row = 0; row < spec.rows; row += 7) ids.push_back(static_cast<int64_t>(spec.rows - 1 - row));
  for (;;) {
    if (reader.read(0, spec.elements(), reinterpret_cast<std::byte*>(out.data()))) {
      const uint64_t each = shard::stripe_elements(spec);
      for (uint64_t i = 0; i < out.size(); ++i)
        if (out[i] != out[i / each * each]) _exit(3);
      (void)!write(tell, "r", 1);
    }
    if (reader.read_rows(ids, 0, reinterpret_cast<std::byte*>(out.data()))) {
      for (uint64_t i = 0; i < ids.size() * spec.cols; ++i)
        if (out[i] != out[i / spec.cols * spec.cols]) _exit(3);
    }
  }
}

void memory_that_is_not_a_segment_is_refused(void**) {
  const shard::Spec spec = matrix(kRows, kCols);
  const auto segment = Segment::make(spec, spec.elements());
  assert_true(segment.ok());
  for (const shard::Spec& other : {matrix(kRows + 1, kCols), matrix(kRows, kCols + 1), matrix(kRows * 10, kCols)}) {
    auto memory = base::SharedMemory::adopt(dup(segment.value()->memory()->fd()), 1);
    const auto reader = SegmentReader::open(std::move(memory).value(), other, other.elements());
    assert_false(reader.ok());
    assert_int_equal(reader.status().code(), MV_EPROTOCOL);
  }
  auto empty = base::SharedMemory::make("empty", 64);
  assert_false(SegmentReader::open(empty.value(), spec, spec.elements()).ok());
}

void a_stripe_that_is_being_written_is_not_read(void**) {
  const shard::Spec spec = matrix(kRows, kCols);
  const auto segment = Segment::make(spec, spec.elements());
  for (uint64_t stripe = 0; stripe < stripes_of(spec); ++stripe) fill(*segment.value(), spec, stripe, 1);
  const auto reader = reader_of(*segment.value(), spec);
  std::vector<float> out(spec.elements());
  auto* bytes = reinterpret_cast<std::byte*>(out.data());
  const int64_t in_first = 0, in_second = static_cast<int64_t>(shard::stripe_elements(spec) / kCols);
  segment.value()->begin_write(1);
  assert_false(reader->read(0, spec.elements(), bytes));
  assert_true(reader->read(0, shard::stripe_elements(spec), bytes));
  assert_false(reader->read_rows({&in_second, 1}, 0, bytes));
  assert_true(reader->read_rows({&in_first, 1}, 0, bytes));
  segment.value()->end_write(1);
  assert_true(reader->read(0, spec.elements(), bytes));
  assert_true(std::all_of(out.begin(), out.end(), [](float value) { return value == 1; }));
}

void readers_see_whole_stripes_and_block_no_writer(void**) {
  const shard::Spec spec = matrix(kRows, kCols);
  const auto segment = Segment::make(spec, spec.elements());
  const auto reader = reader_of(*segment.value(), spec);
  constexpr int kReaders = 3;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kReaders; ++i) {
    const pid_t child = fork();
    if (child == 0) read_for_ever(*reader, spec, pipes[1]);
    children.push_back(child);
  }
  close(pipes[1]);
  uint64_t writes = 0;
  size_t killed = 0;
  const auto begun = Clock::now();
  for (float value = 2; Clock::now() - begun < 1500ms; ++value) {
    for (uint64_t stripe = 0; stripe < stripes_of(spec); ++stripe, ++writes)
      fill(*segment.value(), spec, stripe, value);
    if (killed < children.size() - 1 && Clock::now() - begun > 400ms * (killed + 1)) kill(children[killed++], SIGKILL);
    if (static_cast<int>(value) % 16 == 0) std::this_thread::sleep_for(1ms);  // gives the readers a chance
  }
  for (size_t i = killed; i < children.size(); ++i) kill(children[i], SIGKILL);
  for (const pid_t child : children) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);  // none exited because of a torn read
  }
  char byte;
  assert_int_equal(read(pipes[0], &byte, 1), 1);
  close(pipes[0]);
  assert_true(writes > 100);
}

void a_writer_killed_in_the_middle_leaves_an_unreadable_stripe(void**) {
  const shard::Spec spec = matrix(kRows, kCols);
  const auto segment = Segment::make(spec, spec.elements());
  keep_in_children(*segment.value()->memory());
  const auto reader = reader_of(*segment.value(), spec);
  std::vector<float> out(spec.elements());
  for (int round = 0; round < 10; ++round) {
    const pid_t writer = fork();
    if (writer == 0) {
      for (float value = 1;; ++value) fill(*segment.value(), spec, 0, value);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + round));
    kill(writer, SIGKILL);
    assert_int_equal(waitpid(writer, nullptr, 0), writer);
    const uint64_t each = shard::stripe_elements(spec);
    if (reader->read(0, each, reinterpret_cast<std::byte*>(out.data()))) {
      for (uint64_t i = 0; i < each; ++i) assert_true(out[i] == out[0]);
    } else {
      segment.value()->end_write(0);  // the next round begins with a consistent stripe and no write in progress:
      fill(*segment.value(), spec, 0, 0);  // its writer may be killed before its first write
    }
  }
}

void segments_leave_half_of_the_descriptors_to_the_program(void**) {
  rlimit before{};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  const shard::Spec spec = matrix(2, 2);
  std::vector<std::unique_ptr<Segment>> made;
  mv::base::Status refused;
  while (refused.ok() && made.size() < 64) {
    auto segment = Segment::make(spec, spec.elements());
    if (segment.ok()) made.push_back(std::move(segment).value());
    else refused = segment.status();
  }
  assert_int_equal(refused.code(), MV_ESYSTEM);
  assert_non_null(std::strstr(refused.text().c_str(), "32 file descriptors"));
  assert_in_range(made.size(), 1, 32);
  made.pop_back();
  assert_true(Segment::make(spec, spec.elements()).ok());
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(memory_that_is_not_a_segment_is_refused),
      cmocka_unit_test(a_stripe_that_is_being_written_is_not_read),
      cmocka_unit_test(readers_see_whole_stripes_and_block_no_writer),
      cmocka_unit_test(a_writer_killed_in_the_middle_leaves_an_unreadable_stripe),
      cmocka_unit_test(segments_leave_half_of_the_descriptors_to_the_program),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
