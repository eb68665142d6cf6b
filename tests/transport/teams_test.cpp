// transport/fabric/teams: the memory of all-reduces that are given up, with a communication library that never ends any.

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <vector>

#include "cmocka.hpp"
#include "transport/fabric/teams.hpp"
#include "transport/loop/loop.hpp"

struct mv_fabric_memory_object {
  void* bytes;
};

namespace {

using namespace mv::transport;
using namespace std::chrono_literals;

/// The library: what it has been given, and has given back.
struct Library {
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::vector<mv_fabric_event> events, shown;
  size_t made = 0, freed = 0, disbanded = 0;
  std::vector<void*> reduces;  // the memory of those under way
} library;

void add_event(mv_fabric_event_kind kind, void* user) {
  mv_fabric_event event{};
  event.kind = kind;
  event.user = user;
  library.events.push_back(event);
}

const char* error() { return "none"; }
mv_status open(const mv_fabric_options*, mv_fabric* fabric) {
  *fabric = reinterpret_cast<mv_fabric>(&library);
  return MV_OK;
}
void close(mv_fabric) {}
mv_status describe(mv_fabric, mv_fabric_about* about) {
  *about = {};
  about->most_header = 1024;
  about->size = 2;
  return MV_OK;
}
mv_status address(mv_fabric, const void** bytes, uint64_t* count) {
  *bytes = "here";
  *count = 4;
  return MV_OK;
}
int32_t descriptor(mv_fabric) { return library.event; }
int32_t arm(mv_fabric) { return library.events.empty() ? 1 : 0; }
mv_status progress(mv_fabric, const mv_fabric_event** events, uint64_t* count) {
  library.shown = std::exchange(library.events, {});
  *events = library.shown.data();
  *count = library.shown.size();
  return MV_OK;
}
mv_status memory_make(mv_fabric, uint64_t bytes, void** memory, mv_fabric_memory* handle) {
  *memory = std::malloc(bytes);
  *handle = new mv_fabric_memory_object{*memory};
  ++library.made;
  return MV_OK;
}
/// Would keep the memory of a reduce; here, none ever ends.
void memory_free(mv_fabric, mv_fabric_memory handle) {
  std::free(handle->bytes);
  delete handle;
  ++library.freed;
}
mv_status team(mv_fabric, const int32_t*, uint64_t, uint64_t, void* user, mv_fabric_team* made) {
  *made = reinterpret_cast<mv_fabric_team>(&library.reduces);
  add_event(MV_FABRIC_TEAMED, user);
  return MV_OK;
}
void disband(mv_fabric, mv_fabric_team) { ++library.disbanded; }
mv_status reduce(mv_fabric, mv_fabric_team, void* values, uint64_t, mv_dtype, int32_t, void*) {
  library.reduces.push_back(values);
  return MV_OK;
}

constexpr mv_fabric_plugin kPlugin = {MV_FABRIC_INTERFACE, sizeof(mv_fabric_plugin), "none", error, open, close, describe, address, nullptr, descriptor,
                                      arm, progress, nullptr, nullptr, nullptr, nullptr, nullptr, memory_make, memory_free,
                                      nullptr, nullptr, nullptr, nullptr, team, disband, reduce};

void memory_of_what_was_given_up_is_freed_and_not_used_again(void**) {
  constexpr size_t kWindow = 4;
  Loop loop;
  assert_true(loop.start().ok());
  std::unique_ptr<Teams> teams;
  std::unique_ptr<Team> one;
  const auto on_loop = [&](Task task) {
    std::atomic<bool> done{false};  // both threads look at it
    loop.drive_until([&] { return done.load(); }, loop.now() + 20s, [&] {
      task();
      done = true;
    });
    assert_true(done);
  };
  const auto make_team = [&] {
    std::atomic<bool> is_made{false};
    on_loop([&] {
      teams->make_team({0, 1}, 7, [&](auto made) {
        one = std::move(made).value();
        is_made = true;
      });
    });
    loop.drive_until([&] { return is_made.load(); }, loop.now() + 20s);
    assert_true(one != nullptr);
  };
  on_loop([&] { teams = Teams::make(loop, std::move(Fabric::open(&kPlugin, true)).value()).value(); });
  std::vector<float> values(4 << 20);
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  for (size_t round = 1; round <= 3; ++round) {
    make_team();
    on_loop([&] { one->reduce({{bytes, bytes, values.size(), MV_F32}}, MV_REDUCE_SUM, [](const auto&) { fail_test("nothing ends"); }); });
    assert_int_equal(library.reduces.size(), kWindow);
    library.reduces.clear();
    on_loop([&] { one.reset(); });
    assert_int_equal(library.disbanded, round);
    assert_int_equal(library.made, round * kWindow);
    assert_int_equal(library.freed, round * kWindow);
  }
  on_loop([&] { teams.reset(); });
  loop.stop();
  assert_int_equal(library.freed, library.made);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(memory_of_what_was_given_up_is_freed_and_not_used_again)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
