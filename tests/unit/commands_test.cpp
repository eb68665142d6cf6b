// engine/table: a server's commands, over an unreliable link and with a controller that comes at any time.

#include "engine/table/server/commands.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/rpc/client.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}
#undef fail  // this macro clashes with a function of the core

namespace {

using namespace mv;
using unit::KeepingLink;
using unit::StillClock;
using unit::message_of;
using unit::payload_of;
using Controller = table::Commands::Controller;

constexpr base::Peer kServer = 1, kWorker = 2;

class Heard final : public rpc::Pending {
 public:
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    outcome = (outcome.empty() ? "" : outcome + " ") + mv_status_name(status.code());
  }
  std::string outcome;
};

/// A worker, a server, and a link between them whose messages the test carries.
struct Pair final : rpc::Service {
  Pair() {
    client.on_connected(kServer);
    cluster::View view;
    cluster::Member member;
    member.rank = 4;
    member.role = MV_ROLE_SERVER;
    member.peer = kServer;
    view.members.push_back(member);
    commands.start(view, kServer);
  }
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef&) override {
    commands.on_request(asked, *request.body_as_Command(), payload);
  }
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked& asked) override { commands.on_cancel(asked); }

  void listen(Controller controller) {
    commands.set_controller(controller, [this](int64_t more) { waiting += more; });
  }
  std::shared_ptr<Heard> send(int64_t head, const std::string& body) {
    const auto heard = std::make_shared<Heard>();
    wire::FrameBuilder builder;
    client.call(kServer, {builder.finish(wire::Body::Command, wire::CreateCommand(builder.fbb(), head),
                                         base::Payload::copy(std::as_bytes(std::span(body)))),
                          heard, true, 0, nullptr});
    return heard;
  }
  /// Delivers each message this many times.
  void carry(int times = 1) {
    for (const base::Frame& frame : std::exchange(worker_link.sent, {}))
      for (int i = 0; i < times; ++i) server.on_message(kWorker, message_of(frame), payload_of(frame), nullptr);
    for (const base::Frame& frame : std::exchange(server_link.sent, {}))
      for (int i = 0; i < times; ++i) client.on_answer(kServer, message_of(frame), {});
  }
  /// "5:five"; "" if none waits
  std::string take() {
    const auto command = commands.take();
    if (!command) return "";
    taken.push_back(command->number);
    return std::to_string(command->head) + ":" + command->body;
  }

  StillClock time;
  KeepingLink worker_link, server_link;
  rpc::Client client{time, worker_link, {}};
  rpc::Server server{server_link, *this};
  table::Commands commands{time, server};
  std::vector<uint64_t> taken;
  int64_t waiting = 0;
};

void each_is_executed_once_and_in_order(void**) {
  Pair pair;
  pair.listen(Controller::kHere);
  const auto five = pair.send(5, "five"), six = pair.send(6, "");
  pair.carry(3);
  assert_int_equal(pair.waiting, 2);
  assert_string_equal(pair.take().c_str(), "5:five");
  assert_string_equal(pair.take().c_str(), "6:");
  assert_string_equal(pair.take().c_str(), "");
  assert_int_equal(pair.waiting, 0);
  pair.carry();
  assert_string_equal(five->outcome.c_str(), "");  // not before it is executed
  pair.commands.done(pair.taken[1], base::Status(MV_EINVAL, "no"));
  pair.commands.done(pair.taken[1], {});  // once
  pair.commands.done(pair.taken[0], {});
  pair.carry(2);
  assert_string_equal(five->outcome.c_str(), "MV_OK");
  assert_string_equal(six->outcome.c_str(), "MV_EINVAL");
}

void a_withdrawn_command_is_not_executed(void**) {
  Pair pair;
  pair.listen(Controller::kHere);
  const auto begun = pair.send(1, ""), waits = pair.send(2, "");
  pair.carry();
  assert_string_equal(pair.take().c_str(), "1:");
  pair.client.cancel(kServer, begun.get());
  pair.carry();
  assert_string_equal(begun->outcome.c_str(), "");  // it is under way
  pair.client.cancel(kServer, waits.get());
  pair.carry();
  assert_string_equal(waits->outcome.c_str(), "MV_ETIMEOUT");
  assert_string_equal(pair.take().c_str(), "");
  assert_int_equal(pair.waiting, 0);
  pair.commands.done(pair.taken[0], {});
  pair.carry();
  assert_string_equal(begun->outcome.c_str(), "MV_OK");
}

void they_wait_for_a_controller_that_may_come(void**) {
  Pair pair;
  pair.commands.set_controller(Controller::kAwaited, {});
  const auto first = pair.send(1, "");
  pair.carry();
  pair.listen(Controller::kHere);
  assert_int_equal(pair.waiting, 1);
  assert_string_equal(pair.take().c_str(), "1:");
  const auto second = pair.send(2, ""), third = pair.send(3, "");
  pair.carry();
  pair.commands.set_controller(Controller::kNone, {});
  assert_int_equal(pair.waiting, 0);
  const auto fourth = pair.send(4, "");
  pair.carry();
  assert_string_equal(first->outcome.c_str(), "");
  for (const auto& refused : {second, third, fourth}) assert_string_equal(refused->outcome.c_str(), "MV_ESTATE");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_is_executed_once_and_in_order),
      cmocka_unit_test(a_withdrawn_command_is_not_executed),
      cmocka_unit_test(they_wait_for_a_controller_that_may_come),
  };
  return cmocka_run_group_tests_name("ps/commands", tests, nullptr, nullptr);
}
