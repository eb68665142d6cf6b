// transport/faulty: parsing of the fault specification, and the injected faults.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "transport/faulty/faults.hpp"
#include "transport/faulty/faulty.hpp"

#include "cmocka.hpp"

namespace {

using namespace mv::transport;
using mv::base::Frame;
using mv::base::Peer;
using namespace std::chrono_literals;

void the_text_is_read(void**) {
  const auto faults = parse_faults(" drop=0.25 duplicate=1,delay_ms=2.5;break=0.001\nseed=7 rate=1e6");
  assert_true(faults.ok());
  assert_true(faults.value().drop == 0.25 && faults.value().duplicate == 1 && faults.value().cut == 0.001);
  assert_int_equal(faults.value().delay.count(), 2'500'000);
  assert_int_equal(faults.value().seed, 7);
  assert_true(faults.value().rate == 1e6);
  assert_true(faults.value().any());
  assert_false(parse_faults("").value().any());
}

void mistakes_in_the_text_are_named(void**) {
  for (const char* text : {"drop", "drop=", "drop=x", "drop=1.5", "drop=-0.1", "drop=nan", "drop=0.1x", "delay_ms=-1",
                           "delay_ms=1e99", "rate=-1", "rate=0.5", "seed=-1", "seed=1.5", "=1", "rain=1"}) {
    const auto faults = parse_faults(text);
    assert_false(faults.ok());
    assert_int_equal(faults.status().code(), MV_EINVAL);
  }
  const auto unknown = parse_faults("rain=1").status();
  for (const char* word : {"rain", "drop", "duplicate", "break", "delay_ms", "rate", "seed"})
    assert_non_null(strstr(unknown.text().c_str(), word));
}

/// A transport that only records the messages it is asked to send.
struct Noted : Transport {
  void attach(mv::base::LinkEvents&) override {}
  mv::base::Result<std::string> listen(const std::string& address) override { return address; }
  mv::base::Result<std::string> adopt(int) override { return std::string(); }
  void dial(const std::string&) override {}
  void send(Peer, const Frame& frame) override { sent->push_back(static_cast<int>(frame.head.size())); }
  void close(Peer) override {}
  void flush() override {}
  void stop(std::function<void()> stopped) override { stopped(); }
  void cut(Peer) override { ++*cuts; }
  std::vector<int>* sent = nullptr;
  int* cuts = nullptr;
};

/// Sends frames of 1 .. count bytes through the faults of `text`; returns the delivered ones, in order.
std::vector<int> send_through(const char* text, int count, int* cuts) {
  std::vector<int> sent;
  Loop loop;
  {
    auto noted = std::make_unique<Noted>();
    noted->sent = &sent;
    noted->cuts = cuts;
    FaultyTransport transport(loop, std::move(noted), parse_faults(text).value());
    for (int i = 1; i <= count; ++i) transport.send(5, Frame{std::vector<std::byte>(static_cast<size_t>(i)), nullptr});
    loop.drive_until([] { return false; }, loop.now() + 60ms);
  }
  return sent;
}

void no_fault_changes_nothing(void**) {
  int cuts = 0;
  const auto sent = send_through("", 100, &cuts);
  assert_int_equal(sent.size(), 100);
  assert_true(std::is_sorted(sent.begin(), sent.end()));
  assert_int_equal(cuts, 0);
}

void each_fault_has_its_effect(void**) {
  int cuts = 0;
  assert_int_equal(send_through("drop=1", 100, &cuts).size(), 0);
  assert_int_equal(send_through("duplicate=1", 100, &cuts).size(), 200);
  assert_int_equal(cuts, 0);
  assert_int_equal(send_through("break=1", 10, &cuts).size(), 10);
  assert_int_equal(cuts, 10);
  const size_t half = send_through("drop=0.5", 1000, &cuts).size();
  assert_true(half > 400 && half < 600);
  auto late = send_through("delay_ms=20", 100, &cuts);
  assert_int_equal(late.size(), 100);
  assert_false(std::is_sorted(late.begin(), late.end()));
  std::sort(late.begin(), late.end());
  for (int i = 0; i < 100; ++i) assert_int_equal(late[static_cast<size_t>(i)], i + 1);
}

/// At 1000 bytes a second, the first ten messages (55 bytes) take 55 ms, and 100 messages (5050 bytes) take five seconds.
void a_rate_lets_messages_out_one_behind_the_other(void**) {
  int cuts = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto sent = send_through("rate=1000", 100, &cuts);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  assert_true(std::is_sorted(sent.begin(), sent.end()));
  assert_true(std::accumulate(sent.begin(), sent.end(), 0) <= 1000 * took.count() + 1);
  assert_true(!sent.empty());
}

void the_same_seed_makes_the_same_faults(void**) {
  int cuts = 0;
  const auto one = send_through("drop=0.3 duplicate=0.3 seed=4", 200, &cuts);
  assert_true(one == send_through("drop=0.3 duplicate=0.3 seed=4", 200, &cuts));
  assert_false(one == send_through("drop=0.3 duplicate=0.3 seed=5", 200, &cuts));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_text_is_read),
      cmocka_unit_test(mistakes_in_the_text_are_named),
      cmocka_unit_test(no_fault_changes_nothing),
      cmocka_unit_test(each_fault_has_its_effect),
      cmocka_unit_test(a_rate_lets_messages_out_one_behind_the_other),
      cmocka_unit_test(the_same_seed_makes_the_same_faults),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
