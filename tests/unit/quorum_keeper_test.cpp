// engine/cluster: the built-in keeper. What its voters have accepted is never undone, whoever writes, and whatever messages are lost.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/cluster/quorum_keeper.hpp"
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
using namespace std::chrono_literals;

struct MovingClock final : base::Clock {
  base::Nanos now() const override { return time; }
  base::Nanos time{0};
};

/// Voters with the peers 1, 2, ..., of which the first is the master.
struct Voters {
  explicit Voters(size_t count) {
    View view;
    view.epoch = 1;
    view.master = 1;
    for (uint32_t rank = 0; rank < count; ++rank) {
      Member member;
      member.rank = rank;
      member.peer = rank + 1;
      member.role = MV_ROLE_SERVER;
      member.votes = true;
      view.members.push_back(member);
    }
    for (const Member& member : view.members) {
      const base::Peer self = member.peer;
      QuorumKeeper::Events events;
      events.send = [this, self](base::Peer to, const QuorumKeeper::Vote& vote) { sent.push_back({self, to, vote}); };
      events.hears_master = [this, self] { return !cut.contains(keepers.at(self)->decided().master); };
      events.decided = [this, self](const View& decided) { told[self] = decided; };
      keepers[self] = std::make_unique<QuorumKeeper>(clock, self, 5s, std::move(events));
      keepers[self]->learn(view);
    }
  }
  QuorumKeeper& of(base::Peer peer) { return *keepers.at(peer); }
  void deliver() {
    while (!sent.empty()) {
      const Sent next = sent.front();
      sent.pop_front();
      if (!cut.contains(next.from) && !cut.contains(next.to)) of(next.to).on_vote(next.from, next.vote);
    }
  }
  void pass(base::Nanos span) {
    for (base::Nanos passed{0}; passed < span; passed += 10ms) {
      clock.time += 10ms;
      for (auto& [peer, keeper] : keepers)
        if (!cut.contains(peer)) keeper->tick();
      deliver();
    }
  }
  /// The outcome of a write in which this process becomes the master.
  std::shared_ptr<base::Result<uint64_t>> write(base::Peer by) {
    View view = of(by).decided();
    ++view.epoch;
    view.master = by;
    auto outcome = std::make_shared<base::Result<uint64_t>>(base::Status(MV_EINPROGRESS_OF_TEST, ""));
    of(by).write(view.epoch - 1, to_bytes(view), [outcome](base::Result<uint64_t> written) { *outcome = std::move(written); });
    return outcome;
  }
  std::shared_ptr<base::Result<Keeper::Content>> read(base::Peer by) {
    auto outcome = std::make_shared<base::Result<Keeper::Content>>(base::Status(MV_EINPROGRESS_OF_TEST, ""));
    of(by).read([outcome](base::Result<Keeper::Content> content) { *outcome = std::move(content); });
    return outcome;
  }

  static constexpr mv_status MV_EINPROGRESS_OF_TEST = MV_EINTR;  ///< neither a success nor an error that a keeper gives
  struct Sent {
    base::Peer from, to;
    QuorumKeeper::Vote vote;
  };
  MovingClock clock;
  std::deque<Sent> sent;
  std::set<base::Peer> cut;  ///< gone, or cut off from all others
  std::map<base::Peer, View> told;
  std::map<base::Peer, std::unique_ptr<QuorumKeeper>> keepers;
};

void the_master_writes_in_one_round_trip(void**) {
  Voters voters(3);
  const auto outcome = voters.write(1);
  assert_int_equal(voters.sent.size(), 2);
  for (const Voters::Sent& sent : voters.sent) assert_true(sent.vote.word == wire::VoteWord::Accept);
  voters.deliver();
  assert_true(outcome->ok());
  assert_int_equal(outcome->value(), 2);
  assert_int_equal(voters.of(1).decided().epoch, 2);
}

void a_majority_replaces_the_master_and_the_master_can_write_no_more(void**) {
  Voters voters(3);
  voters.cut.insert(1);
  const auto content = voters.read(2);
  voters.deliver();
  assert_true(content->ok());
  assert_int_equal(content->value().revision, 1);
  const auto outcome = voters.write(2);
  voters.deliver();
  assert_true(outcome->ok());
  voters.cut.clear();
  const auto deposed = voters.write(1);
  voters.deliver();
  assert_int_equal(deposed->status().code(), MV_ESTATE);
  assert_int_equal(voters.of(1).decided().master, 2);
  assert_int_equal(voters.told.at(1).master, 2);
}

void a_minority_decides_nothing(void**) {
  Voters voters(3);
  voters.cut = {1, 2};
  const auto outcome = voters.write(3);
  voters.pass(6s);
  assert_int_equal(outcome->status().code(), MV_EUNREACHABLE);
  assert_int_equal(voters.of(3).decided().epoch, 1);
}

void voters_that_hear_the_master_replace_nobody(void**) {
  Voters voters(3);
  const auto outcome = voters.write(3);
  voters.pass(6s);
  assert_int_equal(outcome->status().code(), MV_EUNREACHABLE);
  assert_true(voters.write(1)->status().code() == MV_EINTR);
  voters.deliver();
  assert_int_equal(voters.of(1).decided().epoch, 2);
}

void what_the_lost_master_has_begun_is_completed(void**) {
  Voters voters(3);
  voters.write(1);
  voters.sent.pop_back();  // one of the others has it
  const base::Peer has_it = voters.sent.front().to;
  voters.of(has_it).on_vote(1, voters.sent.front().vote);
  voters.sent.clear();  // the master never hears of it
  voters.cut.insert(1);
  const base::Peer other = has_it == 2 ? 3 : 2;
  const auto content = voters.read(other);
  voters.pass(1s);
  assert_true(content->ok());
  assert_int_equal(content->value().revision, 2);
  assert_int_equal(voters.of(other).decided().master, 1);
}

void of_two_the_master_goes_on_alone_and_the_other_one_does_not(void**) {
  Voters voters(2);
  voters.cut.insert(2);
  assert_true(voters.write(1)->ok());
  Voters others(2);
  others.cut.insert(1);
  const auto outcome = others.write(2);
  others.pass(6s);
  assert_int_equal(outcome->status().code(), MV_EUNREACHABLE);
}

void two_that_want_to_be_master_agree(void**) {
  Voters voters(5);
  voters.cut.insert(1);
  const auto a = voters.write(2), b = voters.write(3);
  voters.pass(4s);
  assert_int_equal((a->ok() ? 1 : 0) + (b->ok() ? 1 : 0), 1);
  assert_int_equal((a->ok() ? b : a)->status().code(), MV_ESTATE);
  assert_int_equal(voters.of(2).decided().master, voters.of(3).decided().master);
}

void a_lost_vote_is_asked_for_again(void**) {
  Voters voters(3);
  const auto outcome = voters.write(1);
  voters.sent.clear();
  voters.pass(200ms);
  assert_true(outcome->ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_master_writes_in_one_round_trip),
      cmocka_unit_test(a_majority_replaces_the_master_and_the_master_can_write_no_more),
      cmocka_unit_test(a_minority_decides_nothing),
      cmocka_unit_test(voters_that_hear_the_master_replace_nobody),
      cmocka_unit_test(what_the_lost_master_has_begun_is_completed),
      cmocka_unit_test(of_two_the_master_goes_on_alone_and_the_other_one_does_not),
      cmocka_unit_test(two_that_want_to_be_master_agree),
      cmocka_unit_test(a_lost_vote_is_asked_for_again),
  };
  return cmocka_run_group_tests_name("cluster/quorum_keeper", tests, nullptr, nullptr);
}
