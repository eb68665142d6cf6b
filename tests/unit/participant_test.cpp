// engine/checkpoint/participant: a load concurrent with other threads' calls, which destroy and create tables between its steps.

#include "engine/checkpoint/participant.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.hpp"
#include "checkpoint/restore.hpp"
#include "engine/rpc/client.hpp"
#include "engine/table/server/server.hpp"
#include "engine/table/spec_wire.hpp"
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
namespace checkpoint = checkpoint;

constexpr base::Peer kServer = 1, kWorker = 2, kOtherServer = 3;

shard::Spec spec_of(const std::string& name, uint64_t rows = 4) {
  shard::Spec spec;
  spec.name = name;
  spec.kind = MV_ARRAY;
  spec.rows = rows;
  return spec;
}

/// A disk that does its work when the test says so.
class SlowDisk final : public checkpoint::Storage {
 public:
  void begin(const std::string&, Told<checkpoint::CheckpointPath>) override {}
  void take_over(const std::string&, Told<bool>) override {}
  void complete(const std::string&, checkpoint::Manifest, uint64_t, Done) override {}
  void discard(const std::string&, Done) override {}
  void find(const std::string&, Told<Found>) override {}
  void write(NewFile file, GivenUp, Told<checkpoint::FileEntry> told) override {
    written.push_back(std::move(file));
    later.push_back([told] { told(checkpoint::FileEntry{"file", 1, "sum"}); });
  }
  void check(const std::string&, checkpoint::Share, Told<checkpoint::Manifest> told) override {
    later.push_back([this, told] { told(manifest); });
  }
  void restore(const std::string&, std::vector<Target> targets, Done done) override {
    later.push_back([this, targets, done] {
      for (const Target& target : targets) {
        if (auto failed = checkpoint::empty_for(target.entry, *target.shard); !failed.ok()) return done(failed);
        target.shard->set_mark(mark);
      }
      done({});
    });
  }
  void move(std::vector<Move> moves, Done done) override {
    const auto shared = std::make_shared<std::vector<Move>>(std::move(moves));
    later.push_back([shared, done] {
      for (Move& move : *shared)
        if (auto failed = checkpoint::move_table(move.entry, *move.from, *move.to); !failed.ok()) return done(failed);
      done({});
    });
  }
  void work() {
    const auto next = std::move(later.front());
    later.pop_front();
    next();
  }
  checkpoint::Manifest manifest;
  shard::Mark mark;  ///< of every table
  std::vector<NewFile> written;
  std::deque<std::function<void()>> later;
};

class Heard final : public rpc::Pending {
 public:
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override {
    outcome = mv_status_name(status.code()) + (": " + status.text());
  }
  std::string outcome;
};

/// The part of a server, which never moves; unless a test says otherwise, of the only one.
class OwnPart final : public checkpoint::ServedParts {
 public:
  explicit OwnPart(table::CheckpointTables& tables) : tables_(tables) {}
  table::CheckpointTables* served(uint64_t part) override { return part == number ? &tables_ : nullptr; }
  bool is_elsewhere(uint64_t) const override { return elsewhere; }
  bool can_move() const override { return elsewhere; }
  bool is_being_copied(uint64_t) const override { return false; }
  bool is_leaving() const override { return leaving; }
  void begin_replacing(uint64_t) override {}
  void replaced(uint64_t, std::function<void()> done) override { done(); }
  base::Status why_cut_off() const override { return cut_off; }
  void hold(uint64_t, const std::string& path, std::span<const std::byte>) override { save.emplace(checkpoint::HeldSave{path, {}}); }
  bool is_held(uint64_t) const override { return is_backed_up; }
  void written(uint64_t, const std::string&, const checkpoint::FileEntry* file) override {
    save->tables.reset();
    if (file != nullptr) save->file = *file;
  }
  checkpoint::HeldSave* held(uint64_t) override { return save ? &*save : nullptr; }
  std::optional<checkpoint::HeldSave> save;
  bool is_backed_up = true;  ///< the back-ups have everything
  base::Status cut_off;
  uint64_t number = 0;
  bool leaving = false;
  bool elsewhere = false;  ///< another process serves it since

 private:
  table::CheckpointTables& tables_;
};

class SetClock final : public base::Clock {
 public:
  base::Nanos now() const override { return at; }
  base::Nanos at{0};
};

/// A process that is server 0 and sends requests to itself, like server 0 does, and a worker.
struct Cluster : rpc::Service {
  Cluster() {
    add(kServer, MV_ROLE_SERVER);
    add(kWorker, MV_ROLE_WORKER);
    for (rpc::Client* client : {&coordinator, &worker}) client->on_connected(kServer);
    tables.start(view, kServer);
    participant.start(view);
  }
  void add(base::Peer peer, int32_t role) {
    cluster::Member member;
    member.rank = static_cast<uint32_t>(view.members.size());
    member.role = role;
    member.peer = peer;
    member.state = cluster::MemberState::kHere;
    view.members.push_back(member);
  }
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) override {
    asked.client == kServer ? participant.on_request(asked, request, payload) : tables.on_request(asked, request, payload, staged);
  }
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked&) override {}

  std::shared_ptr<Heard> ask(rpc::Client& client, base::Frame frame) {
    const auto heard = std::make_shared<Heard>();
    client.call(kServer, {std::move(frame), heard, true, 0, nullptr});
    carry();
    return heard;
  }
  void carry() {
    for (auto* client : {&coordinator, &worker}) {
      const bool saves = client == &coordinator;
      for (const base::Frame& frame : (saves ? coordinator_link : worker_link).take())
        server.on_message(saves ? kServer : kWorker, message_of(frame), payload_of(frame), nullptr);
    }
    for (const auto& [to, frame] : std::exchange(server_link.sent, {}))
      (to == kServer ? coordinator : worker).on_answer(kServer, message_of(frame), {});
  }
  void work() {
    disk.work();
    carry();
  }
  std::shared_ptr<Heard> check() {
    return ask(coordinator, builder.finish(wire::Body::Check, wire::CreateCheckDirect(builder.fbb(), "c", static_cast<uint32_t>(part.number))));
  }
  std::shared_ptr<Heard> restore() {
    return ask(coordinator, builder.finish(wire::Body::Restore, wire::CreateRestoreDirect(builder.fbb(), "c", false)));
  }
  std::shared_ptr<Heard> snapshot(const char* path, bool resumes = false) {
    return ask(coordinator, builder.finish(wire::Body::Snapshot, wire::CreateSnapshotDirect(builder.fbb(), ++saves, 1, path, 0, resumes)));
  }
  std::shared_ptr<Heard> is_written() {
    return ask(coordinator, builder.finish(wire::Body::Written, wire::CreateWritten(builder.fbb(), saves)));
  }
  void create(const shard::Spec& spec) {
    auto& fbb = builder.fbb();
    const auto specs = fbb.CreateVector(std::vector{table::write_spec(fbb, spec)});
    const std::vector<uint8_t> no{0};
    ask(worker, builder.finish(wire::Body::Create, wire::CreateCreate(fbb, specs, fbb.CreateVector(no), fbb.CreateVector(no), fbb.CreateVector(no))));
    ask(worker, builder.finish(wire::Body::Ready, wire::CreateReady(fbb, fbb.CreateVector(std::vector{created}))));
    ++created;
    assert_non_null(tables.find_shard(spec.name).get());
  }
  void destroy(uint32_t number) { ask(worker, builder.finish(wire::Body::Destroy, wire::CreateDestroy(builder.fbb(), number))); }

  /// Stores each frame with its receiver.
  class ServerLink final : public base::Link {
   public:
    void dial(const std::string&) override {}
    void send(base::Peer to, const base::Frame& frame) override { sent.emplace_back(to, frame); }
    void close(base::Peer) override {}
    std::vector<std::pair<base::Peer, base::Frame>> sent;
  };

  SetClock time;
  cluster::View view;
  KeepingLink coordinator_link, worker_link;
  ServerLink server_link;
  rpc::Client coordinator{time, coordinator_link, {}}, worker{time, worker_link, {}};
  rpc::Server server{server_link, *this};
  base::Pool pool{4096, 1};
  SlowDisk disk;
  table::Server tables{time, server, pool, false};
  OwnPart part{tables.checkpoint_tables()};
  checkpoint::Participant participant{time, server, part, &disk};
  wire::FrameBuilder builder;
  uint64_t saves = 0;
  uint32_t created = 0;  ///< the number of tables so far, which is the next one's number
};

void assert_begins(const std::string& text, const std::string& expected) {
  if (!text.starts_with(expected)) print_error("\"%s\" does not begin with \"%s\"\n", text.c_str(), expected.c_str());
  assert_true(text.starts_with(expected));
}

/// Two tables, "a" and "b", and a checkpoint of both that has been verified.
struct Loading : Cluster {
  explicit Loading(const std::string& updater = "add") {
    disk.mark.updates = 5;
    for (const char* name : {"a", "b"}) {
      shard::Spec spec = spec_of(name);
      spec.updater = shard::parse_updater(updater).value();
      create(spec);
      disk.manifest.tables.push_back({spec, spec.updater, 7, {}});
    }
    const auto checked = check();
    work();
    work();
    assert_string_equal(checked->outcome.c_str(), "MV_OK: ");
  }
  uint64_t clock_of(const std::string& name) const {
    for (const auto& entry : tables.checkpoint_tables().entries({}))
      if (entry.spec.name == name) return entry.clock;
    return UINT64_MAX;
  }
};

void a_load_restarts_the_clocks(void**) {
  Loading cluster;
  const auto restored = cluster.restore();
  cluster.work();
  assert_string_equal(restored->outcome.c_str(), "MV_OK: ");
  assert_int_equal(cluster.clock_of("a"), 7);
  assert_int_equal(cluster.clock_of("b"), 7);
}

void a_load_restores_the_count_of_updates(void**) {
  Loading cluster("mx.adam");
  assert_int_equal(cluster.tables.find_shard("a")->mark().updates, 0);
  cluster.restore();
  cluster.work();
  assert_int_equal(cluster.tables.find_shard("a")->mark().updates, 5);
}

void a_table_destroyed_while_it_is_filled_is_named(void**) {
  Loading cluster;
  const auto restored = cluster.restore();
  cluster.destroy(0);
  cluster.work();
  assert_begins(restored->outcome, "MV_ESTATE: table \"a\" was destroyed while it was being loaded");
  assert_int_equal(cluster.clock_of("b"), 7);  // the others are loaded
}

void a_table_of_that_name_created_meanwhile_keeps_its_clock(void**) {
  Loading cluster;
  const auto restored = cluster.restore();
  cluster.destroy(0);
  cluster.create(spec_of("a", 9));
  cluster.work();
  assert_begins(restored->outcome, "MV_ESTATE: table \"a\" was destroyed while it was being loaded");
  assert_int_equal(cluster.clock_of("a"), 0);
}

void a_table_destroyed_before_it_is_filled_is_named(void**) {
  Loading cluster;
  cluster.destroy(1);
  assert_begins(cluster.restore()->outcome, "MV_ESTATE: table \"b\" was destroyed while it was being loaded");
}

void a_table_of_another_shape_created_meanwhile_is_not_filled(void**) {
  Loading cluster;
  cluster.destroy(1);
  cluster.create(spec_of("b", 2));  // fewer rows than in the checkpoint
  assert_begins(cluster.restore()->outcome, "MV_EDISAGREE: table \"b\" is ");
  assert_true(cluster.disk.later.empty());
}

void a_coordinator_that_leaves_ends_what_it_has_begun(void**) {
  Loading cluster;
  cluster.part.leaving = true;
  const auto restored = cluster.restore();
  cluster.work();
  assert_string_equal(restored->outcome.c_str(), "MV_OK: ");
  const auto checked = cluster.check();  // of its own job, which it would wait for
  cluster.work();
  cluster.work();
  assert_string_equal(checked->outcome.c_str(), "MV_OK: ");
}

void a_part_that_leaves_begins_no_load(void**) {
  Cluster cluster;
  cluster.add(kOtherServer, MV_ROLE_SERVER);
  cluster.part.number = 1;  // the coordinator serves part 0
  cluster.part.leaving = true;
  const auto held = cluster.check();
  assert_true(cluster.disk.later.empty() && held->outcome.empty());
  assert_false(cluster.participant.is_busy());  // or the part would never leave
  cluster.part.leaving = false;
  cluster.check();
  assert_int_equal(cluster.disk.later.size(), 1);
}

void a_part_that_has_moved_is_named_at_once(void**) {
  Cluster cluster;
  cluster.add(kOtherServer, MV_ROLE_SERVER);
  const auto check = [&] { return cluster.ask(cluster.coordinator, cluster.builder.finish(wire::Body::Check, wire::CreateCheckDirect(cluster.builder.fbb(), "c", 1))); };
  assert_begins(check()->outcome, "MV_EPROTOCOL");
  cluster.part.elsewhere = true;  // a save or load that waited for it here would never end
  assert_begins(check()->outcome, "MV_ECANCELED: this part of the tables has moved");
}

void a_snapshot_is_answered_when_the_backups_have_it(void**) {
  Cluster cluster;
  cluster.create(spec_of("a"));
  cluster.part.is_backed_up = false;
  const auto taken = cluster.snapshot("c/1");
  assert_true(taken->outcome.empty());
  cluster.part.is_backed_up = true;
  cluster.time.at = cluster.participant.next_deadline();
  cluster.participant.tick();
  cluster.carry();
  assert_string_equal(taken->outcome.c_str(), "MV_OK: ");
}

void a_backup_that_takes_over_writes_what_it_has_kept(void**) {
  Cluster cluster;
  cluster.create(spec_of("a"));
  cluster.part.save.emplace(checkpoint::HeldSave{"c/1", {}});
  cluster.part.save->tables = cluster.tables.checkpoint_tables().snapshot({}).value();
  cluster.part.save->until = base::Nanos(5);
  assert_string_equal(cluster.snapshot("c/1", true)->outcome.c_str(), "MV_OK: ");
  assert_true(cluster.part.save->until == base::kNever);  // the save goes on, whatever the coordinator waits for
  assert_true(cluster.disk.written.empty());
  cluster.is_written();
  assert_int_equal(cluster.disk.written.size(), 1);
  assert_int_equal(cluster.disk.written.front().tables.size(), 1);
  assert_true(cluster.disk.written.front().again);
  assert_true(cluster.participant.is_busy());
  cluster.work();
  assert_string_equal(cluster.is_written()->outcome.c_str(), "MV_OK: ");
  assert_false(cluster.participant.is_busy());
  // Another coordinator hears the same.
  cluster.participant.lost(kServer);
  assert_string_equal(cluster.snapshot("c/1", true)->outcome.c_str(), "MV_OK: ");
  assert_int_equal(cluster.disk.written.size(), 1);
}

void what_nobody_has_kept_is_an_error(void**) {
  Cluster cluster;
  cluster.create(spec_of("a"));
  assert_begins(cluster.snapshot("c/1", true)->outcome, "MV_EPEERLOST");
  cluster.part.save.emplace(checkpoint::HeldSave{"c/1", {}});
  cluster.part.save->lost = base::error(MV_EPEERLOST, "no memory");
  assert_string_equal(cluster.snapshot("c/1", true)->outcome.c_str(), "MV_EPEERLOST: no memory");
  assert_true(cluster.disk.written.empty());
}

void a_process_that_is_cut_off_waits_for_no_backup(void**) {
  Cluster cluster;
  cluster.create(spec_of("a"));
  cluster.part.is_backed_up = false;
  cluster.part.cut_off = base::error(MV_EPEERLOST, "cut off");
  assert_string_equal(cluster.snapshot("c/1")->outcome.c_str(), "MV_EPEERLOST: cut off");
}

/// The snapshot of a save that does not go on, as its workers are gone, is in the way of the next one.
void another_save_drops_what_was_kept(void**) {
  Cluster cluster;
  cluster.create(spec_of("a"));
  cluster.part.save.emplace(checkpoint::HeldSave{"c/1", {}});
  cluster.part.save->tables = cluster.tables.checkpoint_tables().snapshot({}).value();
  assert_string_equal(cluster.snapshot("c/2")->outcome.c_str(), "MV_OK: ");
  assert_int_equal(cluster.disk.written.size(), 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_load_restarts_the_clocks),
      cmocka_unit_test(a_load_restores_the_count_of_updates),
      cmocka_unit_test(a_table_destroyed_while_it_is_filled_is_named),
      cmocka_unit_test(a_table_of_that_name_created_meanwhile_keeps_its_clock),
      cmocka_unit_test(a_table_destroyed_before_it_is_filled_is_named),
      cmocka_unit_test(a_table_of_another_shape_created_meanwhile_is_not_filled),
      cmocka_unit_test(a_coordinator_that_leaves_ends_what_it_has_begun),
      cmocka_unit_test(a_part_that_leaves_begins_no_load),
      cmocka_unit_test(a_part_that_has_moved_is_named_at_once),
      cmocka_unit_test(a_snapshot_is_answered_when_the_backups_have_it),
      cmocka_unit_test(a_backup_that_takes_over_writes_what_it_has_kept),
      cmocka_unit_test(what_nobody_has_kept_is_an_error),
      cmocka_unit_test(a_process_that_is_cut_off_waits_for_no_backup),
      cmocka_unit_test(another_save_drops_what_was_kept),
  };
  return cmocka_run_group_tests_name("ps/participant", tests, nullptr, nullptr);
}
