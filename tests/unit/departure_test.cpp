// engine/cluster: when a server has no one left to serve.

#include <string>
#include <vector>

#include "engine/cluster/cluster.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using cluster::MemberState;

constexpr base::Peer kMaster = 1, kSelf = 2, kWorker = 3, kHeir = 4;

/// A server, rank 1, of a cluster whose ranks 0 (the master) and 2 are workers.
class Serving final : private rpc::Service, private cluster::Cluster::Owner {
 public:
  Serving() {
    cluster_.start();
    cluster_.on_connected(kMaster, "m:1");
    auto frame = view(1, {kMaster, MemberState::kHere}, {kWorker, MemberState::kHere});
    wire::stamp(frame, 1, 1);
    client_.on_answer(kMaster, unit::message_of(frame), {});
    cluster_.on_connected(kWorker, "m:3");
    for (const base::Peer peer : {kMaster, kWorker}) {
      const auto ping = builder_.finish(wire::Body::Ping, wire::CreatePing(builder_.fbb(), 1));
      cluster_.on_ping(peer, *unit::message_of(ping).body_as_Ping());
    }
  }

  struct Worker {
    base::Peer peer;
    MemberState state;
  };
  /// The master sends a view.
  void hear(uint64_t epoch, Worker master, Worker other) {
    const auto frame = view(epoch, master, other);
    cluster_.on_view(kMaster, *unit::message_of(frame).body_as_View(), unit::payload_of(frame));
  }
  void leaves(base::Peer worker) {
    auto frame = builder_.finish(wire::Body::Leave, wire::CreateLeave(builder_.fbb()));
    wire::stamp(frame, 1, 0);
    server_.on_message(worker, unit::message_of(frame), {}, nullptr);
  }
  void loses(base::Peer peer) { cluster_.on_lost(peer, base::error(MV_EPEERLOST, "gone")); }
  bool is_over() const { return cluster_.all_workers_gone(); }
  size_t news = 0;  ///< the number of prompts to check again

 private:
  base::Frame view(uint64_t epoch, Worker master, Worker other) {
    cluster::View view;
    view.epoch = epoch;
    const auto add = [&](base::Peer peer, int32_t role, MemberState state) {
      cluster::Member member;
      member.rank = static_cast<uint32_t>(view.members.size());
      member.role = role;
      member.peer = peer;
      member.address = "m:" + std::to_string(peer);
      member.state = state;
      view.members.push_back(member);
    };
    add(master.peer, MV_ROLE_WORKER, master.state);
    add(kSelf, MV_ROLE_SERVER, MemberState::kHere);
    add(other.peer, MV_ROLE_WORKER, other.state);
    return builder_.finish(wire::Body::View, cluster::write_view(builder_.fbb(), view));
  }
  static cluster::Self self() {
    cluster::Self self;
    self.peer = kSelf;
    self.rank = 1;
    self.role = MV_ROLE_SERVER;
    self.nodes = 3;
    self.is_master = false;
    self.master = "m:1";
    self.address = "m:2";
    return self;
  }

  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte>, const base::SinkRef&) override {
    cluster_.on_request(asked, request);
  }
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked&) override {}
  void on_view(const cluster::View&) override {}
  void on_ready() override {}
  void on_failed(const base::Status& why) override { fail_msg("%s", why.text().c_str()); }
  void on_member_finished(const cluster::Member&) override {}
  void on_member_lost(const cluster::Member&, const base::Status&) override {}
  void on_member_joined(const cluster::Member&) override {}
  void on_news() override { ++news; }

  unit::StillClock clock_;
  unit::KeepingLink link_;
  rpc::Client client_{clock_, link_, {}};
  rpc::Server server_{link_, *this};
  wire::FrameBuilder builder_;
  cluster::Cluster cluster_{clock_, link_, client_, server_, *this, self()};
};

void the_master_announces_when_all_workers_are_gone(void**) {
  Serving serving;
  serving.leaves(kWorker);
  serving.leaves(kMaster);
  assert_false(serving.is_over());
  const size_t before = serving.news;
  serving.hear(2, {kMaster, MemberState::kFinished}, {kWorker, MemberState::kFinished});
  assert_true(serving.is_over());
  assert_true(serving.news > before);
}

/// Its View comes later than the other worker's Leave.
void the_replacement_of_a_lost_worker_is_served(void**) {
  Serving serving;
  serving.loses(kWorker);
  serving.leaves(kMaster);
  assert_false(serving.is_over());
  serving.hear(3, {kMaster, MemberState::kHere}, {kHeir, MemberState::kHere});
  assert_false(serving.is_over());
  serving.hear(4, {kMaster, MemberState::kFinished}, {kHeir, MemberState::kFinished});
  assert_true(serving.is_over());
}

void without_a_master_it_uses_its_own_information(void**) {
  for (const bool master_left : {false, true}) {
    Serving serving;
    serving.leaves(kWorker);
    if (master_left) serving.leaves(kMaster);
    assert_false(serving.is_over());
    const size_t before = serving.news;
    serving.loses(kMaster);
    assert_true(serving.is_over());
    assert_true(serving.news > before);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_master_announces_when_all_workers_are_gone),
      cmocka_unit_test(the_replacement_of_a_lost_worker_is_served),
      cmocka_unit_test(without_a_master_it_uses_its_own_information),
  };
  return cmocka_run_group_tests_name("cluster/departure", tests, nullptr, nullptr);
}
