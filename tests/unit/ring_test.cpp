// transport/shm: the ring of records between two processes.

#include <sys/mman.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/shared_memory.hpp"
#include "transport/shm/ring.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using transport::Mark;
using transport::RecordKind;
using transport::RingReader;
using transport::RingWriter;

/// Both ends of a ring, each with a mapping of its own, as in two processes.
class Ring {
 public:
  explicit Ring(size_t bytes = transport::kRingBytes) : bytes_(bytes) {
    own_ = base::SharedMemory::make("test", bytes).value();
    seen_ = base::SharedMemory::adopt(dup(own_->fd()), bytes).value();
    writer_.emplace(own_->data(), bytes);
    reader_.emplace(seen_->data(), bytes);
  }
  /// Writes a record whose bytes depend on `number`; false if there is no room.
  bool write(size_t payload, uint32_t number) {
    const size_t bytes = transport::record_bytes(sizeof(Mark) + payload);
    std::byte* const record = writer_->reserve(bytes);
    if (record == nullptr) return false;
    const Mark mark{static_cast<uint32_t>(RecordKind::kPart), static_cast<uint32_t>(payload), number};
    std::memcpy(record, &mark, sizeof mark);
    std::memset(record + sizeof mark, static_cast<int>(number % 251), payload);
    writer_->commit(bytes);
    assert_true(reader_->set_written(writer_->position()));
    return true;
  }
  /// Reads the next record, which must be that one.
  void read(uint32_t number) {
    const auto record = reader_->next();
    assert_true(record.has_value());
    assert_int_equal(record->mark.second, number);
    for (size_t i = 0; i < record->mark.first; ++i) assert_true(record->bytes[sizeof(Mark) + i] == static_cast<std::byte>(number % 251));
    reader_->consume(transport::record_bytes(sizeof(Mark) + record->mark.first));
  }
  /// The writer hears how far the reader is.
  void tell() { assert_true(writer_->set_read(reader_->position())); }
  bool empty() const { return reader_->empty(); }
  size_t resident() const {
    std::vector<unsigned char> pages(bytes_ / 4096);
    assert_int_equal(mincore(own_->data(), bytes_, pages.data()), 0);
    size_t count = 0;
    for (const unsigned char page : pages) count += page & 1;
    return count * 4096;
  }

 private:
  const size_t bytes_;
  std::shared_ptr<base::SharedMemory> own_, seen_;
  std::optional<RingWriter> writer_;
  std::optional<RingReader> reader_;
};

void records_arrive_in_their_order(void**) {
  std::mt19937 random(1);
  Ring ring(64 << 10);
  uint32_t written = 0, read = 0;
  while (read < 20'000) {
    const size_t payload = random() % 8 == 0 ? random() % 20'000 : random() % 300;
    if (random() % 3 != 0 && ring.write(payload, written)) ++written;
    if (random() % 3 != 0 && !ring.empty()) ring.read(read++);
    if (random() % 2 == 0) ring.tell();
    if (ring.empty()) assert_int_equal(read, written);
  }
}

void a_quiet_ring_needs_few_pages(void**) {
  Ring ring;
  assert_int_equal(ring.resident(), 0);
  for (uint32_t i = 0; i < 100'000; ++i) {
    assert_true(ring.write(100, i));
    ring.read(i);
    ring.tell();
  }
  assert_true(ring.resident() <= 2 * transport::kQuietBytes);
}

void a_busy_ring_is_used_whole(void**) {
  Ring ring;
  uint32_t written = 0, read = 0;
  size_t bytes = 0;
  for (; ring.write(10'000, written); ++written) bytes += 10'000;
  assert_true(bytes > transport::kRingBytes - 20'000);
  while (!ring.empty()) ring.read(read++);
  assert_int_equal(read, written);
  // The reader has not told: there is no room.
  assert_false(ring.write(10'000, written));
  ring.tell();
  assert_true(ring.write(transport::kRecordLimit - sizeof(Mark), written));
  ring.read(written);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(records_arrive_in_their_order),
      cmocka_unit_test(a_quiet_ring_needs_few_pages),
      cmocka_unit_test(a_busy_ring_is_used_whole),
  };
  return cmocka_run_group_tests_name("transport/ring", tests, nullptr, nullptr);
}
