// Memory that this process maps and another one writes: shards and gossip's snapshots whose owner changes any word at any moment. Readers
// get garbage or an error; they never crash, and never read beyond the memory.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "engine/gossip/receive_buffer.hpp"
#include "engine/gossip/snapshot.hpp"
#include "shard/segment.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;

constexpr int kTurns = 100'000;

/// A mapping as in another process.
std::shared_ptr<base::SharedMemory> mapped(const base::SharedMemory& memory) { return base::SharedMemory::adopt(dup(memory.fd()), 1).value(); }

/// Writes random words until its end, most of them into the first `head` bytes, which hold everything but values.
class Vandal {
 public:
  Vandal(const base::SharedMemory& memory, size_t head)
      : thread_([this, at = memory.data(), all = memory.bytes(), head] {
          const std::vector<std::byte> sound(at, at + head);
          for (std::mt19937_64 random(7); !stop_;) {
            const size_t within = random() % 16 == 0 ? all : head, place = random() % (within / 8) * 8;
            const uint64_t value = random() % 2 == 0 ? random() >> random() % 64 : random() % 3;
            std::memcpy(at + place, &value, sizeof value);
            if (random() % 2 == 0) std::memcpy(at, sound.data(), head);
          }
        }) {}
  ~Vandal() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void a_shard_is_read_within_its_memory(void**) {
  shard::Spec spec;
  spec.kind = MV_MATRIX;
  spec.rows = 200;
  spec.cols = 50;
  const auto segment = shard::Segment::make(spec, spec.elements()).value();
  const auto memory = mapped(*segment->memory());
  const Vandal vandal(*segment->memory(), static_cast<size_t>(segment->values() - segment->memory()->data()));
  std::vector<float> out(spec.elements());
  auto* const bytes = reinterpret_cast<std::byte*>(out.data());
  const int64_t ids[] = {0, 199, 7};
  size_t opened = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto reader = shard::SegmentReader::open(memory, spec, spec.elements());
    if (!reader.ok()) continue;
    ++opened;
    static_cast<void>(reader.value()->read(turn % 100, 100, bytes));
    static_cast<void>(reader.value()->read_rows(ids, 0, bytes));
    static_cast<void>(reader.value()->is_closed());
  }
  assert_true(opened > 0);
}

void snapshots_are_read_within_their_memory(void**) {
  gossip::Publisher publisher;
  std::vector<float> values(1000, 1.0F);
  for (int version = 1; version <= 3; ++version) {
    for (int part = 0; part < 3; ++part) assert_true(publisher.add(values.data(), values.size(), MV_F32).ok());
    assert_true(publisher.publish(version, 0.5).ok());
  }
  const auto published = publisher.memory();
  const auto memory = mapped(*published);
  const Vandal vandal(*published, 4096);
  const std::vector<gossip::ArraySpec> own(3, gossip::ArraySpec{values.size(), MV_F32});
  gossip::ReceiveBuffer receive_buffer;
  size_t described = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto opened = gossip::SnapshotReader::open(memory);
    if (!opened.ok()) continue;
    const auto& reader = *opened.value();
    // The last bytes of the last slot that this reader could accept: a reader that reads its size from memory a second time reads far
    // beyond.
    std::byte last[64];
    for (const uint64_t first : {uint64_t{0}, memory->bytes() - sizeof last, memory->bytes(), uint64_t{1} << 30, uint64_t{1} << 40})
      for (uint64_t version = 1; version <= 3; ++version) static_cast<void>(reader.read(version, first, last));
    const uint64_t version = reader.newest();
    const auto description = reader.describe(turn % 2 == 0 ? version : 1 + turn % 3);
    if (!description) continue;
    ++described;
    const uint64_t seen = description->version;
    if (!receive_buffer.begin(*description, own).ok()) continue;
    const uint64_t bytes = receive_buffer.description().bytes;
    static_cast<void>(reader.read(seen, 0, bytes, [&](const std::byte* from) { static_cast<void>(receive_buffer.copy(0, bytes, from)); }));
  }
  assert_true(described > 0);
}

/// One word that alternates: a reader that checks it and then loads it again uses an unchecked value.
void a_size_that_was_checked_is_not_loaded_again(void**) {
  gossip::Publisher publisher;
  const std::vector<float> values(1000, 1.0F);
  assert_true(publisher.add(values.data(), values.size(), MV_F32).ok());
  assert_true(publisher.publish(1, 0.5).ok());
  const auto published = publisher.memory();
  const auto memory = mapped(*published);
  auto& word = reinterpret_cast<gossip::SnapshotHead*>(published->data())->slot_bytes;
  const uint64_t sound = word;
  std::atomic<bool> stop{false};
  std::thread vandal([&] {
    auto* const at = reinterpret_cast<volatile uint64_t*>(&word);
    while (!stop) {
      for (int times = 0; times < 1000; ++times) {
        *at = sound;
        *at = uint64_t{1} << 40;
      }
    }
  });
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto opened = gossip::SnapshotReader::open(memory);
    std::byte beyond[64];
    if (opened.ok()) assert_false(opened.value()->read(1, uint64_t{1} << 36, beyond));
  }
  stop = true;
  vandal.join();
}

/// A peer can neither remove pages under a reader nor offer memory with missing pages.
void memory_that_could_fault_is_refused(void**) {
  const auto refused = [](int fd) { return !base::SharedMemory::adopt(fd, 1).ok(); };
  const int open_ended = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(ftruncate(open_ended, 4096), 0);
  assert_true(refused(dup(open_ended)));
  fcntl(open_ended, F_ADD_SEALS, F_SEAL_GROW);
  assert_true(refused(dup(open_ended)));
  fcntl(open_ended, F_ADD_SEALS, F_SEAL_SHRINK);
  assert_false(refused(dup(open_ended)));
  assert_int_equal(ftruncate(open_ended, 0), -1);
  close(open_ended);
  const int huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
  if (huge < 0) return;  // this kernel has no huge pages
  if (ftruncate(huge, 2 << 20) == 0) {
    fcntl(huge, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK);
    assert_true(refused(dup(huge)));
  }
  close(huge);
}

}  // namespace

int main() {
#if defined(__SANITIZE_THREAD__)
  return 0;  // the vandals' writes are deliberate data races
#endif
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_shard_is_read_within_its_memory),
      cmocka_unit_test(snapshots_are_read_within_their_memory),
      cmocka_unit_test(a_size_that_was_checked_is_not_loaded_again),
      cmocka_unit_test(memory_that_could_fault_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
