// engine/replica: a server's part and its copy are compared piece by piece, and a difference is noticed; a new back-up gets a copy.

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "engine/replica/arrival.hpp"
#include "engine/replica/offer.hpp"
#include "engine/replica/part.hpp"
#include "engine/replica/successor.hpp"
#include "engine/replica/transfer.hpp"
#include "engine/table/spec_wire.hpp"
#include "failing_allocation.hpp"
#include "two_workers.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using unit::message_of;
using unit::payload_of;

constexpr base::Peer kPrimary = unit::kServer, kBackup = 2, kWorker = 7;

/// One process's copy of the primary's part.
struct Copy {
  explicit Copy(const cluster::View& view) { part.start(view, *view.find(kPrimary), tables); }
  shard::Shard& shard(uint32_t number) { return *tables.shard(number); }

  unit::StillClock time;
  unit::KeepingLink link;
  base::Pool pool{4096, 1};
  replica::Part part{link, pool};
  table::Server tables{time, part.streams(), pool, false};
};

/// A worker's requests go to the primary, whose inputs go to the back-up as messages.
struct Pair {
  Pair() {
    primary.part.lead();
    primary.part.pass_on([this](const replica::Part::Input& input) {
      fails_at = std::exchange(failing_allocation, 0);  // only the primary lacks memory, and not here
      const auto payload = input.payload.empty() ? nullptr : base::Payload::copy(input.payload);
      const auto frame = builder.finish(wire::Body::Replicate, replica::write_input(builder.fbb(), 1, input), payload);
      const base::Status replayed = backup.part.replay(kBackup, *message_of(frame).body_as_Replicate(), payload_of(frame), nullptr);
      assert_true(replayed.ok());
      ++inputs;
    });
  }
  static cluster::View make_view() {
    cluster::View view;
    unit::join(view, kPrimary, MV_ROLE_SERVER);
    unit::join(view, kBackup, MV_ROLE_SERVER);
    unit::join(view, kWorker, MV_ROLE_WORKER);
    return view;
  }
  /// A table of int64, or of float with an updater, of this kind; `rows` of two elements on both servers, so half of them here.
  void create(int32_t kind, uint64_t rows, uint64_t capacity = 0, const char* updater = "") {
    shard::Spec spec;
    spec.name = "table " + std::to_string(tables);
    spec.kind = kind;
    spec.rows = rows;
    spec.cols = 2;
    spec.dtype = *updater != '\0' ? MV_F32 : MV_I64;
    spec.capacity = capacity;
    spec.updater = shard::parse_updater(updater).value();
    std::vector<flatbuffers::Offset<wire::TableSpec>> specs{table::write_spec(builder.fbb(), spec)};
    ask(wire::Body::Create, wire::CreateCreate(builder.fbb(), builder.fbb().CreateVector(specs)));
    assert_int_equal(primary.tables.numbers(), ++tables);
    assert_int_equal(backup.tables.numbers(), primary.part.has_backup() ? tables : 0);
  }
  template <typename Body>
  void ask(wire::Body kind, flatbuffers::Offset<Body> body) {
    auto frame = builder.finish(kind, body);
    wire::stamp(frame, ++seq, 0);
    primary.part.on_message(kWorker, message_of(frame), {}, nullptr);
  }
  /// A get of all elements, or of these rows.
  void get(uint32_t table, const std::vector<int64_t>& rows, uint64_t count) {
    auto frame = builder.finish(wire::Body::Get, wire::CreateGet(builder.fbb(), table, 0, rows.empty() ? count : 0, rows.size(), true));
    wire::stamp(frame, ++seq, 0);
    primary.part.on_message(kWorker, message_of(frame), std::as_bytes(std::span(rows)), nullptr);
  }
  void change(uint32_t table, const std::vector<int64_t>& rows, const std::vector<float>& values) {
    const uint64_t count = rows.empty() ? values.size() : 0;
    auto frame = builder.finish(wire::Body::Change, wire::CreateChange(builder.fbb(), table, wire::Write::Add, 0, count, rows.size()));
    wire::stamp(frame, ++seq, 0);
    const auto ids = std::as_bytes(std::span(rows)), of_rows = std::as_bytes(std::span(values));
    std::vector<std::byte> payload(ids.begin(), ids.end());
    payload.insert(payload.end(), of_rows.begin(), of_rows.end());
    primary.part.on_message(kWorker, message_of(frame), payload, nullptr);
  }
  /// change(), in which the primary's allocation of number `fails_at` fails.
  void change_failing(uint32_t table, const std::vector<int64_t>& rows, const std::vector<float>& values) {
    failing_allocation = std::exchange(fails_at, 0);
    try {
      change(table, rows, values);
    } catch (...) {
      failing_allocation = 0;
      throw;
    }
    if (failing_allocation > 0) fails_at = std::exchange(failing_allocation, 0);
  }
  /// Compares all pieces at least once, and returns the number of tables that differ.
  size_t compared() {
    for (int i = 0; i < 40; ++i) primary.part.compare();
    return backup.part.differing();
  }

  const cluster::View view = make_view();
  wire::FrameBuilder builder;
  Copy primary{view}, backup{view};
  uint32_t tables = 0;
  uint64_t seq = 0;
  size_t inputs = 0;
  uint64_t fails_at = 0;  ///< see change_failing()
};

std::vector<int64_t> numbers(size_t count) {
  std::vector<int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

/// Keys from 1 on that server 0 of two stores.
std::vector<int64_t> numbers_here(const shard::Shard& shard, size_t count) {
  std::vector<int64_t> keys = numbers(count);
  std::erase_if(keys, [&](int64_t key) { return shard::server_of(shard.spec(), 2, key) != 0; });
  return keys;
}

const std::byte* bytes_of(const std::vector<int64_t>& values) { return reinterpret_cast<const std::byte*>(values.data()); }

void nothing_is_compared_without_tables(void**) {
  Pair pair;
  assert_int_equal(pair.compared(), 0);
  assert_int_equal(pair.inputs, 0);
}

/// A large one of several pieces, an empty one, and one of rows by key.
struct Tables : Pair {
  Tables() {
    create(MV_MATRIX, 600'000);
    create(MV_KEYVALUE, 0);
    create(MV_KEYVALUE, 0);
    const auto values = numbers(600'000);
    const std::vector<int64_t> keys = numbers(50'000), of_keys = numbers(100'000);
    for (Copy* copy : {&primary, &backup}) {
      copy->shard(0).change(shard::Write::Set, shard::kNoWorker, 0, copy->shard(0).elements(), bytes_of(values));
      copy->shard(2).change_rows(shard::Write::Set, shard::kNoWorker, keys, bytes_of(of_keys));
    }
  }
};

void equal_copies_are_equal(void**) {
  Tables pair;
  const size_t before = pair.inputs;
  assert_int_equal(pair.compared(), 0);
  assert_true(pair.inputs > before + 20);
}

void one_element_of_a_large_table_is_found(void**) {
  for (const uint64_t place : {uint64_t{0}, uint64_t{131'071}, uint64_t{131'072}, uint64_t{599'999}}) {
    Tables pair;
    const int64_t wrong = -1;
    pair.backup.shard(0).change(shard::Write::Set, shard::kNoWorker, place, 1, reinterpret_cast<const std::byte*>(&wrong));
    assert_int_equal(pair.compared(), 1);
    const std::string said = base::log_tail().lines.back();
    for (const char* part : {"server 0 (", "server 1 (", "\"table 0\"", "131072 elements"})
      if (place < 524'288) assert_non_null(strstr(said.c_str(), part));
  }
}

void one_row_of_many_is_found(void**) {
  const std::vector<int64_t> wrong{1, -1}, key{31'234}, strange{70'000};
  Tables changed;
  changed.primary.shard(2).change_rows(shard::Write::Set, shard::kNoWorker, key, bytes_of(wrong));
  assert_int_equal(changed.compared(), 1);
  Tables erased;
  erased.backup.shard(2).change_rows(shard::Write::Erase, shard::kNoWorker, key, nullptr);
  assert_int_equal(erased.compared(), 1);
  Tables added;
  added.backup.shard(2).change_rows(shard::Write::Set, shard::kNoWorker, strange, bytes_of(wrong));
  assert_int_equal(added.compared(), 1);
}

void a_table_that_is_destroyed_meanwhile_is_skipped(void**) {
  Tables pair;
  pair.primary.part.compare();
  pair.ask(wire::Body::Destroy, wire::CreateDestroy(pair.builder.fbb(), uint32_t{0}));
  assert_null(pair.primary.tables.shard(0).get());
  assert_int_equal(pair.compared(), 0);
}

/// One bit of a mean square, of a momentum, of the updater's count, or of what a worker got: values are still equal.
void a_difference_in_the_states_is_found(void**) {
  const auto differ = [](const char* updater, int32_t kind, const auto& spoil) {
    Pair pair;
    pair.create(kind, kind == MV_MATRIX ? 600'000 : 0, 0, updater);
    pair.create(MV_MATRIX, 4);
    const std::vector<int64_t> rows = kind == MV_MATRIX ? std::vector<int64_t>() : numbers_here(pair.primary.shard(0), 40'000);
    const size_t values = kind == MV_MATRIX ? 600'000 : rows.size() * 2;
    for (Copy* copy : {&pair.primary, &pair.backup}) {
      const std::vector<float> gradient(values, 1);
      std::vector<float> got(values);
      shard::Shard& shard = copy->shard(0);
      const auto* const added = reinterpret_cast<const std::byte*>(gradient.data());
      auto* const read = reinterpret_cast<std::byte*>(got.data());
      rows.empty() ? shard.change(shard::Write::Add, 0, 0, values, added) : shard.change_rows(shard::Write::Add, 0, rows, added);
      rows.empty() ? shard.read(0, 0, values, read) : shard.read_rows(0, rows, read);
    }
    if (pair.compared() != 0) fail_msg("%s: equal copies differ", updater);
    spoil(pair.backup.shard(0), rows);
    if (pair.compared() != 1) fail_msg("%s: no difference was found", updater);
    return base::log_tail().lines.back();
  };
  const auto spoil_state = [](shard::Shard& shard, const auto&) {
    const std::vector<std::byte> wrong(8, std::byte{1});
    assert_true(shard.restore_states({.first = shard.rows().end() - 1, .count = 1, .ids = {}, .values = {}, .states = {wrong}}).ok());
  };
  const std::string said = differ("momentum rate=0.5", MV_MATRIX, spoil_state);
  assert_non_null(strstr(said.c_str(), "beside the values"));
  differ("mx.adam", MV_MATRIX, [](shard::Shard& shard, const auto&) { shard.set_mark({shard.mark().updates + 1, shard.mark().shared}); });
  const auto spoil_get = [](shard::Shard& shard, const std::vector<int64_t>& keys) {
    const std::vector<float> wrong(2, 0.25F);
    shard::Rows row{.first = shard.rows().end() - 1, .count = 1, .ids = {}, .values = std::as_bytes(std::span(wrong)), .states = {}};
    row.content = shard::Content::kGot;
    row.worker = 0;
    if (!keys.empty()) row.ids = {keys.back()};
    assert_true(shard.restore(row).ok());
  };
  differ("dcasgd", MV_MATRIX, spoil_get);
  differ("dcasgd mean_square=0.5", MV_KEYVALUE, spoil_get);
}

/// On a slow connection, answers to workers would wait for more digests every second.
void a_comparison_waits_for_the_one_before(void**) {
  Tables pair;
  replica::Outbox& outbox = pair.primary.part.outbox();
  size_t compared = 0;
  pair.primary.part.pass_on([&](const replica::Part::Input& input) {
    outbox.add_input();
    compared += input.event == wire::ReplicaEvent::Compared ? 1 : 0;
  });
  for (const size_t acknowledged : {0, 1, 2}) {
    for (int second = 0; second < 5; ++second) pair.primary.part.compare();
    assert_int_equal(compared, acknowledged + 1);
    outbox.input_acknowledged();
  }
}

// ---- lack of memory

/// The status of the only answer with an error among what was sent; MV_OK: there is none.
mv_status error_in(unit::KeepingLink& link) {
  mv_status error = MV_OK;
  for (const base::Frame& frame : link.take()) {
    const auto status = static_cast<mv_status>(message_of(frame).status());
    assert_true(error == MV_OK || status == MV_OK);
    if (status != MV_OK) error = status;
  }
  return error;
}

/// Whether the primary has memory for new rows, or where in a change it lacks that, both copies change alike, or the process ends.
void rows_without_memory_are_refused_by_both(void**) {
  size_t refused = 0, ended = 0;
  for (uint64_t nth = 1;; ++nth) {
    Pair pair;
    pair.create(MV_KEYVALUE, 0, 0, "momentum rate=0.1 momentum=0.9");
    const std::vector<int64_t> some = numbers_here(pair.primary.shard(0), 400), all = numbers_here(pair.primary.shard(0), 8000);
    pair.change(0, some, std::vector<float>(some.size() * 2, 1));
    pair.primary.part.streams().flush();
    assert_int_equal(error_in(pair.primary.link), MV_OK);
    pair.fails_at = nth;
    try {
      pair.change_failing(0, all, std::vector<float>(all.size() * 2, 2));
    } catch (const std::bad_alloc&) {
      ++ended;
      continue;
    }
    const bool none_failed = std::exchange(pair.fails_at, 0) > 0;
    const mv_status error = error_in(pair.primary.link);
    assert_true(error == MV_OK || error == MV_ENOMEM);
    refused += error == MV_ENOMEM ? 1 : 0;
    for (Copy* copy : {&pair.primary, &pair.backup}) assert_int_equal(copy->shard(0).usage().stored, error == MV_OK ? all.size() : some.size());
    assert_int_equal(pair.compared(), 0);
    pair.change(0, all, std::vector<float>(all.size() * 2, 3));
    assert_int_equal(pair.backup.shard(0).usage().stored, all.size());
    assert_int_equal(pair.compared(), 0);
    if (none_failed) break;
  }
  assert_true(refused > 3 && ended > 0);
}

/// The back-up knows, too, that the creation has failed: a worker that did not get the answer asks it again.
void a_table_without_memory_is_refused_by_both(void**) {
  Pair pair;
  pair.create(MV_MATRIX, 4);
  const auto create = [&](replica::Part& part, uint64_t seq) {
    shard::Spec spec;
    spec.name = "large";
    spec.kind = MV_MATRIX;
    spec.rows = uint64_t{1} << 46;
    spec.cols = 2;
    spec.dtype = MV_I64;
    std::vector<flatbuffers::Offset<wire::TableSpec>> specs{table::write_spec(pair.builder.fbb(), spec)};
    auto frame = pair.builder.finish(wire::Body::Create, wire::CreateCreate(pair.builder.fbb(), pair.builder.fbb().CreateVector(specs)));
    wire::stamp(frame, seq, 0);
    part.on_message(kWorker, message_of(frame), {}, nullptr);
  };
  assert_int_equal(error_in(pair.primary.link), MV_OK);
  create(pair.primary.part, ++pair.seq);
  assert_int_equal(error_in(pair.primary.link), MV_ENOMEM);
  pair.tables = pair.primary.tables.numbers();
  pair.create(MV_MATRIX, 4);  // it has the number after the one that was refused, on both
  pair.backup.part.lead();
  create(pair.backup.part, pair.seq - 1);
  assert_int_equal(error_in(pair.backup.link), MV_ENOMEM);
}

// ---- a new back-up

constexpr base::Peer kNew = 3;

/// Carries requests to the receiver, and its answers back, until nothing happens any more.
struct Transferring : Pair {
  Transferring() {
    primary.part.lead_alone();
    peers.on_connected(kNew);
  }
  /// Receives what the transfer sends. Of a real process, replica::Parts does that.
  struct Receiver : rpc::Service {
    explicit Receiver(Transferring& of) : of(of) {}
    base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
    void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
    void on_cancel(const rpc::Asked&) override {}
    void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged) override {
      using wire::ReplicaEvent;
      const auto& input = *request.body_as_Replicate();
      base::Status status;
      if (input.event() == ReplicaEvent::State || input.event() == ReplicaEvent::Rows || input.event() == ReplicaEvent::End)
        status = of.take(input, payload);
      else if (input.event() != ReplicaEvent::Begin)
        of.arrival.hold(asked, request, payload, staged);
      if (!status.ok() && status.code() == of.refusal.code()) return (streams.fail)(asked, status);  // cmocka has a macro of that name
      assert_true(status.ok());
      const bool is_input = input.event() < ReplicaEvent::Begin || input.event() > ReplicaEvent::End;
      if (!is_input || !of.withholds) streams.finish(asked);
    }
    Transferring& of;
    unit::KeepingLink link;
    rpc::Server streams{link, *this};
  };
  /// With `fails_at`, that allocation of all that the receiver makes for the copy fails.
  base::Status take(const wire::Replicate& input, std::span<const std::byte> payload) {
    failing_allocation = fails_at;
    base::Status status = arrival.take(*view.find(kPrimary), input, payload);
    fails_at = std::exchange(failing_allocation, 0);
    if (!status.ok()) refusal = status;
    assert_true(refusal.ok() || (refusal.code() == MV_ENOMEM && status.code() == MV_ENOMEM));
    return status;
  }
  void carry_on() {
    for (const base::Frame& frame : link.take()) receiver.streams.on_message(kPrimary, message_of(frame), payload_of(frame), nullptr);
    receiver.streams.flush();
    for (const base::Frame& frame : receiver.link.take()) peers.on_answer(kNew, message_of(frame), payload_of(frame));
    tick();
  }
  void tick() {
    if (offer != nullptr && offer->tick()) offer.reset();
  }
  void carry() {
    for (int round = 0; round < 200; ++round) carry_on();
    while (arrival.has_all() && !arrival.is_over()) {
      base::Status status;
      const rpc::Asked asked = arrival.process_next(&status);
      assert_true(status.ok());
      if (withholds) receiver.streams.finish(asked);
    }
  }
  void begin() {
    replica::Transfer::Events events;
    events.passes_on = [this] {
      primary.part.pass_on([this](const replica::Part::Input& input) {
        auto frame = builder.finish(wire::Body::Replicate, replica::write_input(builder.fbb(), 1, input), base::Payload::copy(input.payload));
        class Acknowledged final : public rpc::Pending {
          void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override { assert_true(status.ok()); }
        };
        const size_t cost = frame.bytes();
        peers.call(kNew, {std::move(frame), std::make_shared<Acknowledged>(), false, cost, nullptr});
      });
    };
    events.is_equal = [this] { is_equal = true; };
    events.failed = [this] { has_failed = true; };
    transfer = std::make_shared<replica::Transfer>(peers, primary.part, 1, kNew, std::move(events));
    offer = std::make_shared<replica::Offer>(clock, peers, primary.part, [this] { return transfer->start(); });
    offer->ask({1, kNew, kPrimary, 0}, kPrimary);
  }
  void add(uint32_t table, int64_t value) {
    const std::vector<int64_t> values(primary.shard(table).elements(), value);
    auto frame = builder.finish(wire::Body::Change, wire::CreateChange(builder.fbb(), table, wire::Write::Add, 0, values.size()));
    wire::stamp(frame, ++seq, 0);
    primary.part.on_message(kWorker, message_of(frame), std::as_bytes(std::span(values)), nullptr);
  }
  void assert_equal_values(uint32_t table) {
    std::vector<int64_t> theirs(primary.shard(table).elements()), ours(theirs.size());
    primary.shard(table).read(shard::kNoWorker, 0, theirs.size(), reinterpret_cast<std::byte*>(theirs.data()));
    copied.tables.shard(table)->read(shard::kNoWorker, 0, ours.size(), reinterpret_cast<std::byte*>(ours.data()));
    assert_true(theirs == ours);
  }

  /// Like Copy, but its part is started by what arrives.
  struct Copied {
    unit::StillClock time;
    unit::KeepingLink link;
    base::Pool pool{4096, 1};
    replica::Part part{link, pool};
    table::Server tables{time, part.streams(), pool, false};
  };
  struct Clock final : base::Clock {
    base::Nanos now() const override { return time += std::chrono::milliseconds(1); }
    mutable base::Nanos time{0};
  };
  Clock clock;
  unit::KeepingLink link;
  rpc::Client peers{clock, link, {}};
  Copied copied;
  replica::Arrival arrival{copied.part, copied.tables, kNew};
  Receiver receiver{*this};
  std::shared_ptr<replica::Transfer> transfer;
  std::shared_ptr<replica::Offer> offer;
  bool is_equal = false, has_failed = false;
  base::Status refusal;
  bool withholds = false;  ///< the receiver acknowledges inputs when it processes them
};

void a_new_backup_gets_values_tables_and_streams(void**) {
  Transferring pair;
  pair.create(MV_MATRIX, 300'000);
  pair.create(MV_KEYVALUE, 0);
  pair.create(MV_MATRIX, 4);
  pair.ask(wire::Body::Destroy, wire::CreateDestroy(pair.builder.fbb(), uint32_t{2}));
  std::vector<int64_t> keys = numbers(40'000);
  std::erase_if(keys, [&](int64_t key) { return shard::server_of(pair.primary.shard(1).spec(), 2, key) != 0; });
  const std::vector<int64_t> of_keys = numbers(2 * keys.size());
  pair.primary.shard(1).change_rows(shard::Write::Set, shard::kNoWorker, keys, bytes_of(of_keys));
  pair.add(0, 7);
  pair.begin();
  pair.carry();
  assert_true(pair.is_equal && !pair.has_failed);
  assert_int_equal(pair.copied.tables.numbers(), 3);
  assert_false(pair.copied.tables.has(2));
  pair.assert_equal_values(0);
  for (int i = 0; i < 40; ++i) pair.primary.part.compare();
  pair.carry();
  assert_int_equal(pair.copied.part.differing(), 0);
  // What its client repeats is known to the copy.
  pair.copied.part.lead();
  auto frame = pair.builder.finish(wire::Body::Destroy, wire::CreateDestroy(pair.builder.fbb(), uint32_t{0}));
  wire::stamp(frame, pair.seq, 0);
  pair.copied.part.on_message(kWorker, message_of(frame), {}, nullptr);
  assert_true(pair.copied.tables.has(0));
}

void adds_during_the_transfer_are_in_the_copy(void**) {
  Transferring pair;
  pair.create(MV_MATRIX, 300'000);
  pair.begin();
  for (int round = 0; round < 12; ++round) {
    pair.add(0, round);
    pair.carry_on();
  }
  pair.carry();
  assert_true(pair.is_equal && !pair.has_failed);
  pair.assert_equal_values(0);
}

/// So it is when many bytes of inputs wait for the end of the copy. They fill the sender's window.
void a_copy_overtakes_inputs_that_wait_for_it(void**) {
  Transferring pair;
  pair.withholds = true;
  pair.create(MV_MATRIX, 600'000);
  pair.begin();
  for (int round = 0; round < 8; ++round) {
    pair.add(0, round);
    pair.carry_on();
  }
  pair.carry();
  assert_true(pair.is_equal && !pair.has_failed);
  for (int i = 0; i < 8; ++i) pair.carry();  // the other inputs, for which there was no room
  pair.assert_equal_values(0);
}

/// The transfer goes on between the gets and adds of the worker, whose effect depends on what it last got.
void a_new_backup_gets_what_workers_got(void**) {
  for (const bool is_keyed : {false, true}) {
    Transferring pair;
    pair.create(is_keyed ? MV_KEYVALUE : MV_MATRIX, is_keyed ? 0 : 400'000, 0, "dcasgd rate=0.5 lambda=1 mean_square=0.5");
    const std::vector<int64_t> rows = is_keyed ? numbers_here(pair.primary.shard(0), 30'000) : std::vector<int64_t>();
    const size_t values = is_keyed ? rows.size() * 2 : 400'000;
    const std::vector<float> gradient(values, 1);
    const auto add = [&] { pair.change(0, rows, gradient); };
    add();
    pair.get(0, rows, values);
    add();
    pair.begin();
    for (int round = 0; round < 12; ++round) {
      round % 3 == 0 ? pair.get(0, rows, values) : add();
      pair.carry_on();
    }
    pair.carry();
    assert_true(pair.is_equal && !pair.has_failed);
    add();
    pair.get(0, rows, values);
    for (int i = 0; i < 60; ++i) {
      pair.primary.part.compare();
      pair.carry();
    }
    assert_int_equal(pair.copied.part.differing(), 0);
    shard::Shard &theirs = pair.primary.shard(0), &ours = *pair.copied.tables.shard(0);
    if (is_keyed) {
      const auto a = theirs.scan_stored(0, 100'000).value(), b = ours.scan_stored(0, 100'000).value();
      assert_true(a.rows == b.rows && a.values == b.values && a.beside == b.beside && a.rows.size() == rows.size());
    } else {
      size_t arrays = 0;
      for (uint64_t array = 0; arrays == 0 || array != 0; array = theirs.next_stored(array), ++arrays) {
        std::vector<std::byte> a(values * 4), b(values * 4);
        theirs.read_stored(array, 0, values, a.data());
        ours.read_stored(array, 0, values, b.data());
        assert_true(a == b);
        assert_int_equal(theirs.next_stored(array), ours.next_stored(array));
      }
      assert_int_equal(arrays, 3);  // values, means, and what the worker got
    }
  }
}

/// The order itself: keyed_test, a_snapshot_keeps_the_order_of_use().
void a_part_with_an_order_of_use_is_copied(void**) {
  Transferring pair;
  pair.create(MV_KEYVALUE, 0, 100);
  pair.begin();
  pair.carry();
  assert_true(pair.is_equal && !pair.has_failed);
}

/// It may be the only process with the part: it must not end for want of memory for a copy.
void a_server_without_memory_for_a_copy_goes_on(void**) {
  size_t failures = 0, later = 0;
  for (uint64_t nth = 1; nth < 400; ++nth) {
    Transferring pair;
    pair.create(MV_MATRIX, 300'000);
    pair.begin();
    for (const base::Frame& frame : pair.link.take()) pair.receiver.streams.on_message(kPrimary, message_of(frame), payload_of(frame), nullptr);
    pair.receiver.streams.flush();
    for (const base::Frame& frame : pair.receiver.link.take()) pair.peers.on_answer(kNew, message_of(frame), payload_of(frame));
    failing_allocation = nth;
    pair.tick();  // begins the transfer
    const bool none_failed = std::exchange(failing_allocation, 0) > 0;
    if (none_failed) break;
    failures += pair.has_failed ? 1 : 0;
    pair.add(0, 1);
    if (pair.has_failed) continue;
    pair.carry();  // at another moment
    assert_true(pair.is_equal && !pair.has_failed);
    pair.assert_equal_values(0);
    ++later;
  }
  assert_true(failures > 0 && later > 0);
}

/// Nor the receiver, which may serve other parts.
void a_receiver_without_memory_for_a_copy_refuses_it(void**) {
  size_t refused = 0;
  for (uint64_t nth = 1; nth < 2000; ++nth) {
    Transferring pair;
    pair.create(MV_MATRIX, 40, 0, "dcasgd mean_square=0.5");
    pair.create(MV_KEYVALUE, 0, 0, "dcasgd");
    const std::vector<int64_t> keys = numbers_here(pair.primary.shard(1), 20);
    pair.get(0, {}, 40);
    pair.get(1, keys, keys.size() * 2);  // before they are stored
    pair.change(1, {keys[0], keys[1]}, {1, 2, 3, 4});
    pair.get(1, {keys[0]}, 2);
    pair.fails_at = nth;
    pair.begin();
    pair.carry();
    assert_true(pair.is_equal != pair.has_failed);
    if (pair.fails_at > 0) {
      assert_true(pair.is_equal && refused > 20);
      return;
    }
    refused += pair.has_failed ? 1 : 0;
  }
  assert_true(refused < 20);  // the copy needs more allocations than were tried
}

/// A process of a chain, with two others that may follow it.
struct Passing {
  Passing() {
    for (const base::Peer peer : {kBackup, kNew}) peers.on_connected(peer);
  }
  void pass(uint64_t number) {
    successor.pass(builder.finish(wire::Body::Replicate, wire::CreateReplicate(builder.fbb(), 1, wire::ReplicaEvent::Sealed, 0, 0, 0, 0, 0, 0, 0, nullptr,
                                                                               nullptr, 0, number)), [this] { ++done; });
  }
  void acknowledge(base::Peer by, uint64_t requests) {
    auto frame = builder.finish(wire::Body::Ack, wire::CreateAck(builder.fbb()));
    wire::stamp(frame, 0, requests);
    peers.on_answer(by, message_of(frame), {});
  }
  /// The numbers of the inputs that were sent.
  std::vector<uint64_t> sent() {
    std::vector<uint64_t> numbers;
    for (const base::Frame& frame : link.take()) numbers.push_back(message_of(frame).body_as_Replicate()->number());
    return numbers;
  }
  unit::StillClock clock;
  unit::KeepingLink link;
  wire::FrameBuilder builder;
  rpc::Client peers{clock, link, {}};
  size_t acknowledged = 0, done = 0;
  replica::Successor successor{peers, true, [this] { ++acknowledged; }};
};

void a_chain_repeats_what_a_lost_process_has_not_acknowledged(void**) {
  Passing one;
  one.successor.begin(kBackup);
  for (const uint64_t number : {1, 2, 3}) one.pass(number);
  assert_true(one.sent() == std::vector<uint64_t>({1, 2, 3}));
  one.acknowledge(kBackup, 1);
  assert_true(one.acknowledged == 1 && one.done == 1 && one.successor.unacknowledged() == 2);
  one.peers.on_lost(kBackup, base::Status(MV_EPEERLOST, "lost"));
  assert_true(one.acknowledged == 1 && one.successor.unacknowledged() == 2);  // the master decides who follows
  one.pass(4);
  assert_true(one.sent().empty());
  one.successor.replace(kNew);
  assert_true(one.sent() == std::vector<uint64_t>({2, 3, 4}));
  one.acknowledge(kNew, 2);
  assert_true(one.acknowledged == 3 && one.successor.unacknowledged() == 1);
}

void the_last_process_of_a_chain_waits_for_nobody(void**) {
  Passing one;
  one.successor.begin(kBackup);
  for (const uint64_t number : {1, 2}) one.pass(number);
  one.successor.end();
  assert_true(one.acknowledged == 2 && one.done == 2 && one.successor.peer() == base::kNobody);
  one.acknowledge(kBackup, 2);  // it comes too late
  assert_int_equal(one.acknowledged, 2);
}

void a_copy_that_breaks_off_or_does_not_fit_is_refused(void**) {
  Transferring pair;
  pair.create(MV_MATRIX, 4);
  const auto take = [&](wire::ReplicaEvent event, const wire::ReplicaRows* rows, std::span<const std::byte> payload) {
    auto& fbb = pair.builder.fbb();
    const auto frame = pair.builder.finish(wire::Body::Replicate, wire::CreateReplicate(fbb, 1, event, 0, 0, 0, 0, 0, 0, 0, nullptr, rows));
    return pair.arrival.take(*pair.view.find(kPrimary), *message_of(frame).body_as_Replicate(), payload).code();
  };
  const std::vector<std::byte> bytes(64);
  const wire::ReplicaRows whole(0, 0, 0, 2, 0, 0, 32, -1, 0), later(0, 0, 0, 2, 0, 8, 32, -1, 0), many(0, 0, 0, UINT64_MAX / 16, 0, 0, 32, -1, 0);
  const wire::ReplicaRows strange(9, 0, 0, 2, 0, 0, 32, -1, 0), unknown(0, 0, 0, 2, 0, 0, 32, -1, 3), stateful(0, 1, 0, 2, 0, 0, 64, 0, 1);
  const wire::ReplicaRows got(0, 0, 0, 2, 0, 0, 32, 0, 1), absent(0, 0, 0, 2, 0, 0, 0, 0, 2);
  assert_int_equal(take(wire::ReplicaEvent::Rows, &whole, std::span(bytes).first(32)), MV_EPROTOCOL);  // before the state
  assert_int_equal(take(wire::ReplicaEvent::State, nullptr, bytes), MV_EPROTOCOL);
  pair.primary.part.write_state([&](const base::PayloadRef& payload) { assert_int_equal(take(wire::ReplicaEvent::State, nullptr, payload->bytes()), MV_OK); });
  for (const wire::ReplicaRows* rows : {&later, &many, &strange, &unknown, &stateful}) assert_int_equal(take(wire::ReplicaEvent::Rows, rows, std::span(bytes).first(24)), MV_EPROTOCOL);
  assert_int_equal(take(wire::ReplicaEvent::Rows, &whole, bytes), MV_EPROTOCOL);
  assert_int_equal(take(wire::ReplicaEvent::Rows, &got, std::span(bytes).first(32)), MV_EINVAL);  // its updater keeps nothing
  assert_int_equal(take(wire::ReplicaEvent::Rows, &absent, {}), MV_EINVAL);  // a dense table
  assert_int_equal(take(wire::ReplicaEvent::Rows, &whole, std::span(bytes).first(8)), MV_OK);
  assert_int_equal(take(wire::ReplicaEvent::End, nullptr, {}), MV_EPROTOCOL);
  assert_int_equal(take(wire::ReplicaEvent::Rows, &later, std::span(bytes).first(24)), MV_OK);
  assert_int_equal(take(wire::ReplicaEvent::End, nullptr, {}), MV_OK);
  assert_int_equal(take(wire::ReplicaEvent::End, nullptr, {}), MV_EPROTOCOL);
}

/// Such a copy must not be served: the changes that follow would be made on other values than those of the server.
void a_copy_that_lacks_a_change_takes_no_other(void**) {
  Pair pair;
  pair.create(MV_ARRAY, 8);
  const auto replay = [&](wire::ReplicaEvent event) {
    wire::ReplicateBuilder input(pair.builder.fbb());
    input.add_part(1);
    input.add_event(event);
    input.add_number(pair.backup.part.inputs() + 1);
    const auto frame = pair.builder.finish(wire::Body::Replicate, input.Finish());
    return pair.backup.part.replay(kBackup, *message_of(frame).body_as_Replicate(), {}, nullptr).code();
  };
  assert_int_equal(replay(wire::ReplicaEvent::Sealed), MV_OK);
  assert_int_equal(replay(wire::ReplicaEvent::Asked), MV_EPROTOCOL);  // without a request
  assert_int_equal(replay(wire::ReplicaEvent::Sealed), MV_EPROTOCOL);
  assert_int_equal(pair.backup.part.damage().code(), MV_EPROTOCOL);
  assert_true(pair.primary.part.damage().ok());
}

void requests_for_lost_tables_fail_until_they_are_loaded(void**) {
  Pair pair;
  pair.create(MV_ARRAY, 8);
  table::Server& tables = pair.primary.tables;
  const auto get = pair.builder.finish(wire::Body::Get, wire::CreateGet(pair.builder.fbb(), 0, 0, 1, 0, true));
  assert_false(tables.is_gone(message_of(get)));
  tables.lose_all(base::Status(MV_EPEERLOST, "the copy lacks changes"));
  assert_true(tables.is_gone(message_of(get)));
  pair.primary.link.take();
  pair.get(0, {}, 1);
  const auto answers = pair.primary.link.take();
  assert_int_equal(answers.size(), 1);
  assert_int_equal(message_of(answers[0]).status(), MV_EPEERLOST);
  assert_string_equal(message_of(answers[0]).text()->c_str(), "the values of table \"table 0\" are lost: the copy lacks changes");
}

}  // namespace

int main() {
  base::set_log_level(MV_LOG_OFF);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_compared_without_tables),
      cmocka_unit_test(equal_copies_are_equal),
      cmocka_unit_test(one_element_of_a_large_table_is_found),
      cmocka_unit_test(one_row_of_many_is_found),
      cmocka_unit_test(a_table_that_is_destroyed_meanwhile_is_skipped),
      cmocka_unit_test(a_difference_in_the_states_is_found),
      cmocka_unit_test(a_comparison_waits_for_the_one_before),
      cmocka_unit_test(a_new_backup_gets_values_tables_and_streams),
      cmocka_unit_test(a_chain_repeats_what_a_lost_process_has_not_acknowledged),
      cmocka_unit_test(the_last_process_of_a_chain_waits_for_nobody),
      cmocka_unit_test(adds_during_the_transfer_are_in_the_copy),
      cmocka_unit_test(a_copy_overtakes_inputs_that_wait_for_it),
      cmocka_unit_test(a_new_backup_gets_what_workers_got),
      cmocka_unit_test(a_part_with_an_order_of_use_is_copied),
      cmocka_unit_test(rows_without_memory_are_refused_by_both),
      cmocka_unit_test(a_table_without_memory_is_refused_by_both),
      cmocka_unit_test(a_server_without_memory_for_a_copy_goes_on),
      cmocka_unit_test(a_receiver_without_memory_for_a_copy_refuses_it),
      cmocka_unit_test(a_copy_that_breaks_off_or_does_not_fit_is_refused),
      cmocka_unit_test(a_copy_that_lacks_a_change_takes_no_other),
      cmocka_unit_test(requests_for_lost_tables_fail_until_they_are_loaded),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
