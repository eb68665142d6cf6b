// engine/cluster/view_log: whoever gets the changes since its own view has the same view as their sender, whatever was lost, repeated or late.

#include <random>
#include <string>
#include <vector>

#include "engine/cluster/view_log.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using namespace mv::cluster;

View view_of(size_t count) {
  View view;
  view.epoch = 1;
  view.master = 100;
  for (uint32_t rank = 0; rank < count; ++rank) {
    Member member;
    member.rank = rank;
    member.peer = 100 + rank;
    member.role = rank % 3 == 0 ? MV_ROLE_SERVER : MV_ROLE_WORKER;
    member.address = "10.0.0.1:" + std::to_string(4000 + rank);
    member.host = "host-" + std::to_string(rank / 8);
    member.pid = 1000 + rank;
    view.members.push_back(member);
  }
  return view;
}

void assert_equal(const View& got, const View& sent) {
  assert_int_equal(got.epoch, sent.epoch);
  assert_true(got.members == sent.members);
  assert_true(got.loss_texts == sent.loss_texts);
  assert_int_equal(got.losses, sent.losses);
  assert_int_equal(got.master, sent.master);
  assert_int_equal(got.wanted_servers, sent.wanted_servers);
  assert_true(got.has_departures() == sent.has_departures());
  assert_true(to_bytes(got) == to_bytes(sent));
}

Update read(const base::Frame& frame) {
  auto update = read_update(*unit::message_of(frame).body_as_View(), unit::payload_of(frame));
  assert_true(update.ok());
  return std::move(update).value();
}

/// Changes as a cluster has them, and some that it does not have.
class Changing {
 public:
  Changing(uint64_t seed, size_t count) : random_(seed), view(view_of(count)) { log.begin(view); }

  uint64_t below(uint64_t end) { return random_() % end; }
  void change() {
    const View before = view;
    ++view.epoch;
    for (uint64_t i = below(4); i > 0; --i) change(view.members[below(view.members.size())]);
    if (below(8) == 0) view.wanted_servers = static_cast<uint32_t>(below(5));
    if (below(8) == 0) view.master = view.members[below(view.members.size())].peer;
    if (below(5) == 0)
      for (Member& member : view.members) member.votes = below(2) == 0;
    for (uint64_t i = below(3); i > 0; --i) {
      view.loss_texts.push_back("loss " + std::to_string(++view.losses));
      if (view.loss_texts.size() > kLossTexts) view.loss_texts.erase(view.loss_texts.begin());
    }
    log.follow(before, view);
  }
  base::Frame message(uint64_t has) { return log.write(builder_, view, has); }

 private:
  void change(Member& member) {
    switch (below(5)) {
      case 0:
        member.peer = 1'000'000 + next_peer_++;
        member.address += "x";
        member.state = MemberState::kHere;
        member.why.clear();
        member.is_out = false;
        return;
      case 1:
        member.state = MemberState::kLost;
        member.why = "it was killed";
        member.is_out = true;
        return;
      case 2:
        member.state = MemberState::kFinished;
        return;
      case 3:
        member.draining = !member.draining;
        return;
      default:
        member.stand_in = static_cast<uint32_t>(below(view.members.size() + 1));
        return;
    }
  }

  std::mt19937_64 random_;
  uint64_t next_peer_ = 0;
  wire::FrameBuilder builder_;

 public:
  View view;
  ViewLog log;
};

void any_earlier_view_becomes_the_newest_one(void**) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Changing sender(seed, 1 + seed % 40);
    std::vector<View> history{sender.view};
    for (int step = 0; step < 30; ++step) {
      sender.change();
      history.push_back(sender.view);
      const View& has = history[sender.below(history.size())];
      View view = has;
      const Update update = read(sender.message(has.epoch));
      assert_int_equal(update.base, has.epoch);
      assert_true(update.workers_gone == sender.view.workers_gone());
      assert_true(apply(update, view));
      assert_equal(view, sender.view);
      View none;
      assert_true(apply(read(sender.message(0)), none));
      assert_equal(none, sender.view);
    }
  }
}

/// Messages that are late, come twice, or never. The sender believes that each has arrived, unless it is told otherwise.
void a_receiver_never_takes_a_view_that_nobody_had(void**) {
  size_t gaps = 0, taken = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Changing sender(seed, 2 + seed % 40);
    std::vector<View> history{sender.view};
    View view = sender.view;
    uint64_t told = view.epoch;
    std::vector<base::Frame> on_their_way;
    for (int step = 0; step < 100; ++step) {
      sender.change();
      history.push_back(sender.view);
      if (sender.below(4) != 0) on_their_way.push_back(sender.message(told));
      told = sender.view.epoch;
      while (!on_their_way.empty() && sender.below(3) != 0) {
        const size_t which = sender.below(on_their_way.size());
        const Update update = read(on_their_way[which]);
        if (sender.below(4) != 0) on_their_way.erase(on_their_way.begin() + static_cast<ptrdiff_t>(which));
        if (update.view.epoch <= view.epoch) continue;
        const View before = view;
        if (apply(update, view)) {
          ++taken;
          assert_equal(view, history[view.epoch - 1]);
          continue;
        }
        ++gaps;
        assert_equal(view, before);
        assert_true(update.base > view.epoch);
        on_their_way.push_back(sender.message(view.epoch));
        told = sender.view.epoch;
      }
    }
  }
  assert_true(gaps > 100 && taken > 1000);
}

void a_change_costs_as_much_whatever_the_number_of_members(void**) {
  size_t bytes[2];
  for (const size_t count : {100, 10'000}) {
    Changing sender(1, count);
    const View before = sender.view;
    ++sender.view.epoch;
    sender.view.members[7].state = MemberState::kLost;
    sender.view.members[7].why = "worker 4 (rank 7, pid 1007 on host-0) is gone: its process ended";
    sender.log.follow(before, sender.view);
    bytes[count == 100 ? 0 : 1] = sender.message(before.epoch).bytes();
    assert_int_equal(read(sender.message(before.epoch)).view.members.size(), 1);
  }
  assert_int_equal(bytes[0], bytes[1]);
  assert_true(bytes[0] < 400);
}

void a_whole_view_of_many_members_is_a_payload_that_all_share(void**) {
  Changing sender(1, 20'000);
  const base::Frame frame = sender.message(0);
  assert_true(frame.head.size() < 400);
  assert_true(frame.tail != nullptr);
  View view;
  assert_true(apply(read(frame), view));
  assert_equal(view, sender.view);
}

void the_views_before_a_log_begins_are_unknown_to_it(void**) {
  Changing sender(1, 5);
  for (int i = 0; i < 10; ++i) sender.change();
  sender.log.begin(sender.view);
  const uint64_t first = sender.view.epoch;
  sender.change();
  assert_int_equal(read(sender.message(first - 1)).base, 0);
  assert_int_equal(read(sender.message(first)).base, first);
}

/// It may happen in the middle of a change. The next message has it all.
void a_change_without_a_new_number_is_not_lost(void**) {
  Changing sender(1, 5);
  const View told = sender.view;
  View before = sender.view;
  sender.view.members[3].stand_in = 2;
  sender.log.follow(before, sender.view);
  before = sender.view;
  ++sender.view.epoch;
  sender.view.members[4].stand_in = 2;
  sender.log.follow(before, sender.view);
  View view = told;
  assert_true(apply(read(sender.message(told.epoch)), view));
  assert_equal(view, sender.view);
}

void changes_of_unknown_members_are_refused(void**) {
  Changing sender(1, 5), other(2, 3);
  sender.view.members[4].pid = 1;
  const View before = view_of(5);
  ++sender.view.epoch;
  sender.log.follow(before, sender.view);
  View view = other.view;
  assert_false(apply(read(sender.message(1)), view));
  assert_equal(view, other.view);
}

void a_payload_that_is_no_view_is_an_error(void**) {
  Changing sender(1, 40);
  const base::Frame frame = sender.message(0);
  std::vector<std::byte> bytes(unit::payload_of(frame).begin(), unit::payload_of(frame).end());
  for (size_t i = 0; i < 64; ++i) bytes[i] = std::byte{0xff};
  assert_int_equal(read_update(*unit::message_of(frame).body_as_View(), bytes).status().code(), MV_EPROTOCOL);
}

void members_are_found_by_their_peers_while_they_change(void**) {
  Changing changing(3, 300);
  View& view = changing.view;
  for (int i = 0; i < 2000; ++i) {
    Member& member = view.members[changing.below(view.members.size())];
    const base::Peer former = member.peer;
    assert_ptr_equal(view.find(former), &member);
    member.peer = 5'000'000 + static_cast<base::Peer>(i);
    assert_null(view.find(former));
    assert_ptr_equal(view.find(member.peer), &member);
    const View copy = view;
    assert_int_equal(copy.find(member.peer)->rank, member.rank);
    assert_ptr_equal(view.at(member.rank), &member);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_earlier_view_becomes_the_newest_one),
      cmocka_unit_test(a_receiver_never_takes_a_view_that_nobody_had),
      cmocka_unit_test(a_change_costs_as_much_whatever_the_number_of_members),
      cmocka_unit_test(a_whole_view_of_many_members_is_a_payload_that_all_share),
      cmocka_unit_test(the_views_before_a_log_begins_are_unknown_to_it),
      cmocka_unit_test(a_change_without_a_new_number_is_not_lost),
      cmocka_unit_test(changes_of_unknown_members_are_refused),
      cmocka_unit_test(a_payload_that_is_no_view_is_an_error),
      cmocka_unit_test(members_are_found_by_their_peers_while_they_change),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
