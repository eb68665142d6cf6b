// api/table/remote_segment: reads of another process's segment by a network, which is one of this test's.

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "api/table/remote_segment.hpp"
#include "cmocka.hpp"
#include "transport/fabric/traffic.hpp"
#include "transport/loop/loop.hpp"

struct mv_fabric_memory_object {
  void* bytes;
};

namespace {

using namespace mv;
using namespace mv::transport;
using namespace std::chrono_literals;
using api::RemoteSegment;

/// The network: reads this process's memory, unless a test says otherwise. Loop thread only, but for the counts.
struct Network {
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::vector<mv_fabric_event> events, shown;
  std::function<void(int number)> before;  ///< of each get, counted from 1
  mv_status status = MV_OK;                ///< of each get
  bool is_silent = false;                  ///< gets never end
  std::atomic<int> gets{0}, keys_closed{0};
} network;

const char* error() { return "the network is down"; }
mv_status open(const mv_fabric_options* options, mv_fabric* fabric) {
  assert_int_equal(options->gets, 1);
  *fabric = reinterpret_cast<mv_fabric>(&network);
  return MV_OK;
}
void close(mv_fabric) {}
mv_status describe(mv_fabric, mv_fabric_about* about) {
  *about = {};
  about->most_header = 1024;
  return MV_OK;
}
mv_status address(mv_fabric, const void** bytes, uint64_t* count) {
  *bytes = "here";
  *count = 4;
  return MV_OK;
}
int32_t descriptor(mv_fabric) { return network.event; }
int32_t arm(mv_fabric) { return network.events.empty() ? 1 : 0; }
mv_status progress(mv_fabric, const mv_fabric_event** events, uint64_t* count) {
  network.shown = std::exchange(network.events, {});
  *events = network.shown.data();
  *count = network.shown.size();
  return MV_OK;
}
mv_status memory_make(mv_fabric, uint64_t bytes, void** memory, mv_fabric_memory* handle) {
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  *handle = new mv_fabric_memory_object{*memory};
  return MV_OK;
}
void memory_free(mv_fabric, mv_fabric_memory handle) {
  std::free(handle->bytes);
  delete handle;
}
mv_status expose(mv_fabric, void*, uint64_t, mv_fabric_memory*, const void**, uint64_t*) { return MV_ENOSYS; }
mv_status open_key(mv_fabric, mv_fabric_line, const void*, uint64_t, mv_fabric_key*) { return MV_ENOSYS; }
void close_key(mv_fabric, mv_fabric_key) { ++network.keys_closed; }
mv_status get(mv_fabric, mv_fabric_line, mv_fabric_key, uint64_t from, void* to, uint64_t bytes, void* user) {
  const int number = ++network.gets;
  if (network.before) network.before(number);
  if (network.status == MV_EUNREACHABLE) return network.status;
  if (network.is_silent) return MV_OK;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  mv_fabric_event event{};
  event.kind = MV_FABRIC_GOT;
  event.status = network.status;
  event.why = "broken";
  event.user = user;
  network.events.push_back(event);
  return MV_OK;
}

constexpr mv_fabric_plugin kPlugin = {MV_FABRIC_INTERFACE, sizeof(mv_fabric_plugin), "none", error, open, close, describe, address, nullptr, descriptor,
                                      arm, progress, nullptr, nullptr, nullptr, nullptr, nullptr, memory_make, memory_free,
                                      expose, open_key, close_key, get, nullptr, nullptr, nullptr};

struct Silent : LineEvents {
  bool has_lines() const override { return true; }
  void on_arrival(Arrival) override {}
  void on_moved(uint64_t, const base::Status&) override {}
  void on_line_failed(uint64_t, const base::Status&) override {}
};

shard::Spec matrix(uint64_t rows, uint64_t cols) {
  shard::Spec spec;
  spec.kind = MV_MATRIX;
  spec.rows = rows;
  spec.cols = cols;
  return spec;
}

/// A segment, whose element i has the value i, and its reader.
struct Fixture {
  explicit Fixture(uint64_t rows = 2000, uint64_t cols = 500) : spec(matrix(rows, cols)), segment(shard::Segment::make(spec, spec.elements()).value()) {
    network.before = nullptr;
    network.status = MV_OK;
    network.is_silent = false;
    network.gets = network.keys_closed = 0;
    for (uint64_t i = 0; i < spec.elements(); ++i) values()[i] = static_cast<float>(i);
    assert_true(loop.start().ok());
    on_loop([this] {
      traffic = std::make_unique<FabricTraffic>(loop, events, std::move(Fabric::open(&kPlugin, true, base::kNever, true)).value());
      auto key = std::make_shared<RemoteKey>(traffic->fabric(), nullptr);
      memory = std::make_shared<RemoteMemory>(*traffic, nullptr, std::move(key), reinterpret_cast<uint64_t>(segment->memory()->data()), segment->memory()->bytes());
    });
    reader = opened(spec);
  }
  ~Fixture() {
    reader.reset();
    on_loop([this] {
      memory->end();
      traffic->leave();
      traffic.reset();
    });
    loop.stop();
  }
  void on_loop(Task task) {
    std::atomic<bool> done{false};  // both threads look at it
    loop.drive_until([&] { return done.load(); }, loop.now() + 20s, [&] {
      task();
      done = true;
    });
    assert_true(done);
  }
  std::shared_ptr<RemoteSegment> opened(const shard::Spec& as) {
    std::shared_ptr<RemoteSegment> got;
    std::atomic<bool> is_there{false};
    loop.drive_until([&] { return is_there.load(); }, loop.now() + 20s, [&] {
      RemoteSegment::open(loop, memory, as, as.elements(), [&](std::shared_ptr<RemoteSegment> made) {
        got = std::move(made);
        is_there = true;
      });
    });
    return got;
  }
  float* values() const { return reinterpret_cast<float*>(segment->values()); }

  shard::Spec spec;
  std::unique_ptr<shard::Segment> segment;
  Silent events;
  Loop loop;
  std::unique_ptr<FabricTraffic> traffic;
  std::shared_ptr<RemoteMemory> memory;
  std::shared_ptr<RemoteSegment> reader;
};

void values_and_rows_are_read(void**) {
  const Fixture fixture;
  assert_non_null(fixture.reader.get());
  std::vector<float> out(fixture.spec.elements());
  assert_true(fixture.reader->read(0, out.size(), reinterpret_cast<std::byte*>(out.data())));
  assert_memory_equal(out.data(), fixture.values(), out.size() * sizeof(float));
  assert_true(fixture.reader->read(123'456, 3, reinterpret_cast<std::byte*>(out.data())));
  assert_true(out[0] == 123'456 && out[2] == 123'458);
  std::vector<int64_t> ids{7, 8, 9, 1999, 0, 7};
  for (int64_t i = 0; i < 600; ++i) ids.push_back(3 * i);  // more than one step
  out.assign(ids.size() * 500, -1);
  assert_true(fixture.reader->read_rows(ids, 0, reinterpret_cast<std::byte*>(out.data())));
  for (size_t i = 0; i < ids.size(); ++i) assert_memory_equal(&out[i * 500], fixture.values() + ids[i] * 500, 500 * sizeof(float));
}

void rows_that_are_longer_than_a_step(void**) {
  const Fixture fixture(2, 3'000'000);
  const int64_t ids[] = {1};
  std::vector<float> out(3'000'000);
  assert_true(fixture.reader->read_rows(ids, 0, reinterpret_cast<std::byte*>(out.data())));
  assert_memory_equal(out.data(), fixture.values() + 3'000'000, out.size() * sizeof(float));
}

void a_read_that_a_write_has_overlapped_is_repeated(void**) {
  const Fixture fixture;
  std::vector<float> out(500);
  const auto read = [&] { return fixture.reader->read(0, 500, reinterpret_cast<std::byte*>(out.data())); };
  // Head and guards are gets 1 and 2, values 3, head and guards 4 and 5.
  for (const int at : {1, 3, 4}) {
    network.gets = 0;
    network.before = [&](int number) {
      if (number != at) return;
      const shard::StripeWrite open(fixture.segment.get(), 0);
      fixture.values()[0] += 1;
    };
    const float expected = fixture.values()[0] + 1;
    assert_true(read());
    assert_true(out[0] == expected);
    assert_int_equal(network.gets.load(), at == 1 ? 5 : 10);
  }
  // One that goes on all the time: a message is better.
  network.gets = 0;
  network.before = [&](int number) {
    if (number % 5 == 3) fixture.segment->begin_write(0), fixture.segment->end_write(0);
  };
  assert_false(read());
  assert_false(fixture.reader->is_closed());
  network.before = nullptr;
  fixture.segment->begin_write(0);
  assert_false(read());
  fixture.segment->end_write(0);
  assert_true(read());
}

void clocks_are_read(void**) {
  const Fixture fixture;
  fixture.segment->head().clock = 5;
  network.gets = 0;
  assert_true(fixture.reader->has_reached(0));
  assert_int_equal(network.gets.load(), 0);
  assert_true(fixture.reader->has_reached(5));
  assert_false(fixture.reader->has_reached(6));
}

void what_has_moved_or_is_destroyed_is_not_read(void**) {
  for (const bool destroyed : {false, true}) {
    const Fixture fixture;
    std::vector<float> out(500);
    network.before = [&](int number) {
      if (number == network.gets && number % 5 == 4) (destroyed ? fixture.segment->head().destroyed : fixture.segment->head().counts_gets) = 1;
    };
    network.gets = 0;
    assert_false(fixture.reader->read(0, 500, reinterpret_cast<std::byte*>(out.data())));
    assert_true(fixture.reader->is_closed());
  }
}

void a_network_that_fails_or_is_silent_is_not_used_again(void**) {
  std::vector<float> out(500);
  for (const mv_status status : {MV_EUNREACHABLE, MV_ESYSTEM}) {
    const Fixture fixture;
    network.status = status;
    assert_false(fixture.reader->read(0, 500, reinterpret_cast<std::byte*>(out.data())));
    assert_true(fixture.reader->is_closed());
  }
  {
    const Fixture fixture;
    network.is_silent = true;
    assert_false(fixture.reader->read(0, 500, reinterpret_cast<std::byte*>(out.data())));
    assert_true(fixture.reader->is_closed());
  }
  Fixture fixture;
  fixture.on_loop([&] { fixture.memory->end(); });
  assert_int_equal(network.keys_closed.load(), 1);
  assert_false(fixture.reader->read(0, 500, reinterpret_cast<std::byte*>(out.data())));
}

void another_layout_is_refused(void**) {
  Fixture fixture;
  assert_null(fixture.opened(matrix(2000, 499)).get());
  assert_null(fixture.opened(matrix(4000, 500)).get());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(values_and_rows_are_read),
      cmocka_unit_test(rows_that_are_longer_than_a_step),
      cmocka_unit_test(a_read_that_a_write_has_overlapped_is_repeated),
      cmocka_unit_test(clocks_are_read),
      cmocka_unit_test(what_has_moved_or_is_destroyed_is_not_read),
      cmocka_unit_test(a_network_that_fails_or_is_silent_is_not_used_again),
      cmocka_unit_test(another_layout_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
