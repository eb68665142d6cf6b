// engine/table: a worker that replaces a lost one whose loss the servers noticed at different moments.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/spec_wire.hpp"
#include "two_workers.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using unit::StillClock;
using unit::message_of;

constexpr base::Peer kSelf = 7, kServers[] = {1, 2};

/// A link that only stores messages.
class KeepingLink final : public base::Link {
 public:
  void dial(const std::string&) override {}
  void send(base::Peer to, const base::Frame& frame) override { sent[to].push_back(frame); }
  void close(base::Peer) override {}
  std::map<base::Peer, std::vector<base::Frame>> sent;
};

/// A worker that opens a table on two servers.
struct LateWorker {
  LateWorker() {
    for (const base::Peer server : kServers) unit::join(view, server, MV_ROLE_SERVER);
    unit::join(view, kSelf, MV_ROLE_WORKER);
    for (const base::Peer server : kServers) rpc.on_connected(server);
    client.start(view);
    client.catalogue().open("t", base::kNever, [this](auto opened) {
      if (opened.ok()) table = opened.value();
    });
  }
  /// The server's answer: this worker's clock there is `clock`.
  void hear(base::Peer server, uint64_t clock) {
    shard::Spec spec;
    spec.name = "t";
    spec.rows = 10;
    spec.staleness = 1;
    wire::FrameBuilder builder;
    const auto written = table::write_spec(builder.fbb(), spec);
    const wire::CreatedTable opened(clock, 0, 0, 5, true, false);
    const auto tables = builder.fbb().CreateVectorOfStructs(&opened, 1);
    auto frame = builder.finish(wire::Body::Created, wire::CreateCreated(builder.fbb(), tables, written));
    wire::stamp(frame, 1, 1);
    rpc.on_answer(server, message_of(frame), {});
  }
  /// The messages to this server about this worker's clock: "8", "", "3 8"
  std::string told(base::Peer server) {
    std::string clocks;
    for (const base::Frame& frame : link.sent[server])
      if (const auto* clock = message_of(frame).body_as_Clock())
        clocks += (clocks.empty() ? "" : " ") + std::to_string(clock->clock());
    return clocks;
  }

  StillClock time;
  KeepingLink link;
  rpc::Client rpc{time, link, {}};
  base::Pool pool{4096, 1};
  cluster::View view;
  table::TableViewRef table;
  table::Client client{time, rpc, rpc, pool};
};

void it_begins_at_the_latest_clock_and_all_servers_know(void**) {
  LateWorker worker;
  worker.hear(kServers[1], 8);
  assert_null(worker.table.get());
  worker.hear(kServers[0], 3);
  assert_non_null(worker.table.get());
  assert_int_equal(worker.table->clock, 8);
  for (const base::Peer server : kServers) assert_string_equal(worker.told(server).c_str(), "8");
  assert_int_equal(worker.table->open_changes, 1);  // a flush waits for their acknowledgement
}

void servers_that_agree_get_no_message(void**) {
  LateWorker worker;
  for (const base::Peer server : kServers) worker.hear(server, 4);
  assert_non_null(worker.table.get());
  assert_int_equal(worker.table->clock, 4);
  for (const base::Peer server : kServers) assert_string_equal(worker.told(server).c_str(), "");
  assert_int_equal(worker.table->open_changes, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(it_begins_at_the_latest_clock_and_all_servers_know),
      cmocka_unit_test(servers_that_agree_get_no_message),
  };
  return cmocka_run_group_tests_name("ps/late_worker", tests, nullptr, nullptr);
}
