// engine/replica: the parts of a merging table's round are withheld from the back-up until their sum can be sent in their place.

#include <memory>
#include <numeric>
#include <vector>

#include "engine/replica/part.hpp"
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
using unit::message_of;
using unit::payload_of;
using wire::ReplicaEvent;

constexpr base::Peer kPrimary = unit::kServer, kBackup = 2, kFirst = 7, kSecond = 8;
constexpr uint64_t kRows = 400'000;  ///< of the server's half of a table of floats: two stripes

class SetClock final : public base::Clock {
 public:
  base::Nanos now() const override { return time; }
  base::Nanos time{0};
};

struct Copy {
  explicit Copy(const cluster::View& view) { part.start(view, *view.find(kPrimary), tables); }
  std::vector<std::byte> values(uint32_t number) {
    std::vector<std::byte> values(tables.shard(number)->elements() * tables.shard(number)->spec().element_bytes());
    tables.shard(number)->read(shard::kNoWorker, 0, tables.shard(number)->elements(), values.data());
    return values;
  }
  /// Sends acknowledgements, and returns up to which number this client's requests have succeeded as far as it was told.
  uint64_t done(base::Peer client) {
    part.streams().flush();
    for (const auto& [to, frame] : link.take()) {
      const wire::Message& message = message_of(frame);
      told[to] = std::max<uint64_t>(told[to], message.done());
      answers[to] += message.seq() != 0 ? 1 : 0;
      errors[to] += message.status() != 0 ? 1 : 0;
    }
    return told[client];
  }

  SetClock time;
  unit::Cluster::Link link;
  base::Pool pool{1 << 20, 4};
  replica::Part part{link, pool};
  table::Server tables{time, part.streams(), pool, false};
  std::map<base::Peer, uint64_t> told, answers, errors;
};

/// Two workers, a server and its back-up. Inputs wait until the test carries them.
struct Pair {
  explicit Pair(mv_dtype dtype = MV_F32, uint64_t rows = 2 * kRows) {
    primary.part.lead();
    primary.part.pass_on([this](const replica::Part::Input& input) {
      kinds.push_back(input.event);
      bytes += input.payload.size();
      const auto payload = input.payload.empty() ? nullptr : base::Payload::copy(input.payload);
      inputs.push_back(builder.finish(wire::Body::Replicate, replica::write_input(builder.fbb(), 1, input), payload));
      primary.part.outbox().add_input();
    });
    for (const char* name : {"first", "second"}) create(name, dtype, rows);
    carry();
    kinds.clear();
    bytes = 0;
  }
  static cluster::View make_view() {
    cluster::View view;
    unit::join(view, kPrimary, MV_ROLE_SERVER);
    unit::join(view, kBackup, MV_ROLE_SERVER);
    unit::join(view, kFirst, MV_ROLE_WORKER);
    unit::join(view, kSecond, MV_ROLE_WORKER);
    return view;
  }
  void create(const char* name, mv_dtype dtype, uint64_t rows) {
    shard::Spec spec;
    spec.name = name;
    spec.kind = MV_ARRAY;
    spec.rows = rows;
    spec.cols = 1;
    spec.dtype = dtype;
    spec.flags = MV_MERGE;
    for (const base::Peer worker : {kFirst, kSecond}) {
      std::vector<flatbuffers::Offset<wire::TableSpec>> specs{table::write_spec(builder.fbb(), spec)};
      ask(primary, worker, builder.finish(wire::Body::Create, wire::CreateCreate(builder.fbb(), builder.fbb().CreateVector(specs))));
    }
  }
  uint64_t ask(Copy& at, base::Peer worker, base::Frame frame, uint64_t number = 0) {
    const uint64_t seq = number != 0 ? number : ++seqs[worker];
    wire::stamp(frame, seq, 0);
    at.part.on_message(worker, message_of(frame), payload_of(frame), nullptr);
    return seq;
  }
  /// A worker's part of a round: of the whole table, or of one of its two stripes.
  template <typename Value>
  base::Frame part(uint32_t table, uint64_t round, const std::vector<Value>& values, uint64_t first = 0, uint32_t chunks = 1, uint32_t number = 0) {
    const auto body = wire::CreateChange(builder.fbb(), table, wire::Write::Add, first, values.size(), 0, 0, round, chunks, 0, number);
    return builder.finish(wire::Body::Change, body, base::Payload::copy(std::as_bytes(std::span(values))));
  }
  base::Frame stripe(uint64_t round, uint32_t stripe, float value) {
    const uint64_t each = shard::stripe_elements(primary.tables.shard(0)->spec()), all = primary.tables.shard(0)->elements();
    const uint64_t first = stripe * each, count = std::min(each, all - first);
    return part(0, round, std::vector<float>(count, value), first, 2, stripe);
  }
  base::Frame small(uint32_t table, uint64_t round, float value) {
    return part(table, round, std::vector<float>(primary.tables.shard(table)->elements(), value));
  }
  /// Carries the inputs to the back-up, and its acknowledgements back.
  void carry() {
    for (const base::Frame& frame : std::exchange(inputs, {})) {
      const base::Status replayed = backup.part.replay(kBackup, *message_of(frame).body_as_Replicate(), payload_of(frame), nullptr);
      assert_string_equal(replayed.text().c_str(), "");
      primary.part.outbox().input_acknowledged();
    }
  }
  void assert_equal() {
    for (uint32_t table : {0U, 1U}) assert_true(primary.values(table) == backup.values(table));
  }
  float first_value(Copy& of, uint32_t table = 0) {
    float value = 0;
    of.tables.shard(table)->read(shard::kNoWorker, 0, 1, reinterpret_cast<std::byte*>(&value));
    return value;
  }

  const cluster::View view = make_view();
  wire::FrameBuilder builder;
  Copy primary{view}, backup{view};
  std::map<base::Peer, uint64_t> seqs;
  std::vector<base::Frame> inputs;
  std::vector<ReplicaEvent> kinds;
  size_t bytes = 0;
};

void a_round_is_one_input_with_the_sum(void**) {
  Pair pair(MV_F32, 8);
  for (uint64_t round = 0; round < 3; ++round) {
    const uint64_t one = pair.ask(pair.primary, kFirst, pair.small(0, round, 1));
    assert_true(pair.kinds.empty());
    assert_true(pair.primary.done(kFirst) < one);
    const uint64_t two = pair.ask(pair.primary, kSecond, pair.small(0, round, 0.5F));
    assert_int_equal(pair.kinds.size(), 1);
    assert_true(pair.kinds[0] == ReplicaEvent::Merged);
    assert_int_equal(pair.bytes, 4 * sizeof(float));
    assert_true(pair.primary.done(kFirst) < one && pair.primary.done(kSecond) < two);  // the back-up does not have it yet
    pair.carry();
    assert_int_equal(pair.primary.done(kFirst), one);
    assert_int_equal(pair.primary.done(kSecond), two);
    pair.assert_equal();
    pair.kinds.clear();
    pair.bytes = 0;
  }
  assert_true(pair.first_value(pair.backup) == 4.5F);
}

void a_part_that_waits_long_is_passed_on_alone(void**) {
  Pair pair(MV_F32, 8);
  pair.primary.time.time = std::chrono::seconds(1);
  const uint64_t one = pair.ask(pair.primary, kFirst, pair.small(0, 0, 1));
  assert_true(pair.primary.part.withheld_since() == std::chrono::seconds(1));
  pair.primary.part.send_withheld(std::chrono::milliseconds(999));
  assert_true(pair.kinds.empty());
  pair.primary.part.send_withheld(std::chrono::seconds(1));
  assert_true(pair.kinds == std::vector{ReplicaEvent::Asked});
  assert_true(pair.primary.part.withheld_since() == base::kNever);
  pair.carry();
  assert_int_equal(pair.primary.done(kFirst), one);
  pair.ask(pair.primary, kSecond, pair.small(0, 0, 2));  // the rest of the round comes as it is
  assert_true((pair.kinds == std::vector{ReplicaEvent::Asked, ReplicaEvent::Asked}));
  pair.carry();
  pair.assert_equal();
  assert_true(pair.first_value(pair.backup) == 3);
}

void a_death_in_the_middle_of_a_round_loses_nothing_and_doubles_nothing(void**) {
  Pair pair(MV_F32, 8);
  const uint64_t one = pair.ask(pair.primary, kFirst, pair.small(0, 0, 1)), two = pair.ask(pair.primary, kSecond, pair.small(0, 0, 2));
  pair.carry();
  const uint64_t next = pair.ask(pair.primary, kFirst, pair.small(0, 1, 4));  // withheld, and lost with the primary
  pair.backup.part.lead();
  pair.ask(pair.backup, kFirst, pair.small(0, 0, 1), one);  // what was not acknowledged is repeated
  pair.ask(pair.backup, kSecond, pair.small(0, 0, 2), two);
  pair.ask(pair.backup, kFirst, pair.small(0, 1, 4), next);
  assert_true(pair.first_value(pair.backup) == 3);
  pair.ask(pair.backup, kSecond, pair.small(0, 1, 8));
  assert_true(pair.first_value(pair.backup) == 15);
  assert_int_equal(pair.backup.done(kFirst), next);
}

void stripes_are_withheld_each_by_itself_and_in_any_order(void**) {
  Pair pair;
  pair.ask(pair.primary, kFirst, pair.stripe(0, 0, 1));
  pair.ask(pair.primary, kFirst, pair.stripe(0, 1, 1));
  pair.ask(pair.primary, kSecond, pair.stripe(0, 1, 2));  // the first worker's stripe 0 has the smaller number, so it goes first
  assert_true((pair.kinds == std::vector{ReplicaEvent::Asked, ReplicaEvent::Merged}));
  pair.carry();
  pair.ask(pair.primary, kSecond, pair.stripe(0, 0, 2));
  pair.carry();
  pair.assert_equal();
  pair.kinds.clear();
  for (const uint32_t stripe : {0U, 1U})
    for (const base::Peer worker : {kFirst, kSecond}) pair.ask(pair.primary, worker, pair.stripe(1, stripe, 1));
  assert_true((pair.kinds == std::vector{ReplicaEvent::Merged, ReplicaEvent::Merged}));
  pair.carry();
  pair.assert_equal();
  assert_true(pair.first_value(pair.backup) == 5);
}

void other_inputs_of_a_worker_or_a_table_follow_its_parts(void**) {
  Pair pair(MV_F32, 8);
  pair.ask(pair.primary, kFirst, pair.small(0, 0, 1));
  pair.ask(pair.primary, kSecond, pair.small(1, 0, 1));
  const std::vector<float> nines(4, 9);
  const auto values = base::Payload::copy(std::as_bytes(std::span(nines)));
  pair.ask(pair.primary, kFirst, pair.builder.finish(wire::Body::Change, wire::CreateChange(pair.builder.fbb(), 0, wire::Write::Set, 0, 4), values));
  assert_true((pair.kinds == std::vector{ReplicaEvent::Asked, ReplicaEvent::Asked}));  // the first worker's part, and the set
  pair.ask(pair.primary, kFirst, pair.builder.finish(wire::Body::Clock, wire::CreateClock(pair.builder.fbb(), 0, UINT64_MAX)));
  assert_int_equal(pair.kinds.size(), 4);  // the second worker's part, and the clock
  pair.carry();
  pair.assert_equal();
}

void a_get_that_waits_is_no_input_unless_a_worker_is_lost(void**) {
  for (const bool is_lost : {false, true}) {
    Pair pair(MV_F32, 8);
    pair.ask(pair.primary, kFirst, pair.small(0, 0, 1));
    const std::vector<int64_t> rows{2, 0};
    const auto get = wire::CreateGet(pair.builder.fbb(), 0, 0, 0, rows.size(), true, 0, 0, 1);
    pair.ask(pair.primary, kFirst, pair.builder.finish(wire::Body::Get, get, base::Payload::copy(std::as_bytes(std::span(rows)))));
    assert_true(pair.kinds.empty());
    pair.primary.done(kFirst);
    const uint64_t before = pair.primary.answers[kFirst], errors = pair.primary.errors[kFirst];
    if (is_lost)
      pair.primary.part.worker_lost(kSecond, base::error(MV_EPEERLOST, "it was lost"));
    else
      pair.ask(pair.primary, kSecond, pair.small(0, 0, 2));
    pair.primary.done(kFirst);
    assert_int_equal(pair.primary.answers[kFirst], before);  // the values must not be seen before the back-up has them
    using Kinds = std::vector<ReplicaEvent>;
    assert_true(pair.kinds == (is_lost ? Kinds{ReplicaEvent::Asked, ReplicaEvent::Asked, ReplicaEvent::Gone} : Kinds{ReplicaEvent::Merged}));
    pair.carry();
    pair.primary.done(kFirst);
    assert_int_equal(pair.primary.answers[kFirst], before + 1);
    assert_int_equal(pair.primary.errors[kFirst], errors + (is_lost ? 1 : 0));
    pair.assert_equal();
  }
}

void halves_are_summed_up_as_floats_and_have_equal_bits(void**) {
  Pair pair(MV_F16, 2 * 1000);
  for (uint64_t round = 0; round < 20; ++round)
    for (const base::Peer worker : {kFirst, kSecond}) {
      std::vector<uint16_t> values(1000);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>((i * 1031 + round * 77 + worker) & 0x3fff);
      pair.ask(pair.primary, worker, pair.part(0, round, values));
    }
  assert_int_equal(pair.kinds.size(), 20);
  pair.carry();
  pair.assert_equal();
}

void with_one_worker_left_nothing_is_withheld(void**) {
  Pair pair(MV_F32, 8);
  pair.primary.part.worker_finished(kSecond);
  pair.ask(pair.primary, kFirst, pair.small(0, 0, 1));
  assert_true((pair.kinds == std::vector{ReplicaEvent::Finished, ReplicaEvent::Asked}));
  pair.carry();
  pair.assert_equal();
}

void without_its_backup_the_primary_acknowledges_what_it_withheld(void**) {
  Pair pair(MV_F32, 8);
  const uint64_t one = pair.ask(pair.primary, kFirst, pair.small(0, 0, 1));
  assert_true(pair.primary.done(kFirst) < one);
  pair.primary.part.lead_alone();
  assert_int_equal(pair.primary.done(kFirst), one);
  pair.ask(pair.primary, kSecond, pair.small(0, 0, 2));
  assert_true(pair.first_value(pair.primary) == 3);
}

void a_sum_without_its_parts_or_of_another_size_is_refused(void**) {
  Pair pair(MV_F32, 8);
  pair.ask(pair.primary, kFirst, pair.small(0, 0, 1));
  pair.ask(pair.primary, kSecond, pair.small(0, 0, 2));
  const base::Frame whole = std::exchange(pair.inputs, {}).at(0);
  const auto& round = *message_of(whole).body_as_Replicate();
  const auto replay = [&](size_t parts, size_t bytes) {
    Pair fresh(MV_F32, 8);
    std::vector<flatbuffers::Offset<wire::RoundPart>> some;
    flatbuffers::FlatBufferBuilder fbb;
    for (uint32_t i = 0; i < parts; ++i) {
      const auto* part = round.parts()->Get(i);
      const auto header = fbb.CreateVector(part->header()->data(), part->header()->size());
      some.push_back(wire::CreateRoundPart(fbb, part->client(), part->seq(), part->done(), header));
    }
    const auto of_round = fbb.CreateVector(some);
    wire::ReplicateBuilder input(fbb);
    input.add_event(ReplicaEvent::Merged);
    input.add_parts(of_round);
    fbb.Finish(input.Finish());
    return fresh.backup.part.replay(kBackup, *flatbuffers::GetRoot<wire::Replicate>(fbb.GetBufferPointer()), payload_of(whole).first(bytes), nullptr);
  };
  assert_int_equal(replay(2, 16).code(), MV_OK);
  assert_int_equal(replay(2, 12).code(), MV_EPROTOCOL);
  assert_int_equal(replay(1, 16).code(), MV_EPROTOCOL);
  assert_int_equal(replay(0, 16).code(), MV_EPROTOCOL);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_round_is_one_input_with_the_sum),
      cmocka_unit_test(a_part_that_waits_long_is_passed_on_alone),
      cmocka_unit_test(a_death_in_the_middle_of_a_round_loses_nothing_and_doubles_nothing),
      cmocka_unit_test(stripes_are_withheld_each_by_itself_and_in_any_order),
      cmocka_unit_test(other_inputs_of_a_worker_or_a_table_follow_its_parts),
      cmocka_unit_test(a_get_that_waits_is_no_input_unless_a_worker_is_lost),
      cmocka_unit_test(halves_are_summed_up_as_floats_and_have_equal_bits),
      cmocka_unit_test(with_one_worker_left_nothing_is_withheld),
      cmocka_unit_test(without_its_backup_the_primary_acknowledges_what_it_withheld),
      cmocka_unit_test(a_sum_without_its_parts_or_of_another_size_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
