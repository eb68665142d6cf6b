// engine/table: a server applies well-formed changes, encoded ones and several in one message, and refuses all others before it
// touches its table.

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/pool.hpp"
#include "codec/codec.hpp"
#include "engine/table/server/server.hpp"
#include "engine/table/spec_wire.hpp"
#include "keeping_link.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

namespace {

using namespace mv;
using unit::KeepingLink;
using unit::StillClock;
using unit::message_of;
using unit::payload_of;

constexpr base::Peer kWorker = 7, kOther = 8, kServer = 1;
constexpr uint64_t kCount = 20;

/// One server with one table, and one worker's stream to it.
class Serving final : private rpc::Service {
 public:
  explicit Serving(mv_dtype dtype = MV_F32, int64_t staleness = MV_UNSET, uint32_t flags = 0) {
    join(kServer, MV_ROLE_SERVER);
    join(kWorker, MV_ROLE_WORKER);
    join(kOther, MV_ROLE_WORKER);
    server_.start(view_, kServer);
    shard::Spec spec;
    spec.name = "t";
    spec.dtype = dtype;
    spec.rows = kCount;
    spec.staleness = staleness;
    spec.flags = flags;
    auto& fbb = builder_.fbb();
    ask(builder_.finish(wire::Body::Create, wire::CreateCreate(fbb, fbb.CreateVector({table::write_spec(fbb, spec)}))));
    ask(builder_.finish(wire::Body::Ready, wire::CreateReady(fbb, fbb.CreateVector({uint32_t{0}}))));
  }

  struct Answer {
    mv_status status = MV_OK;
    std::string text;
    std::vector<std::byte> payload;
  };
  Answer ask(base::Frame frame) {
    wire::stamp(frame, ++seq_, 0);
    link_.sent.clear();
    rpc_.on_message(kWorker, message_of(frame), payload_of(frame), nullptr);
    for (const base::Frame& sent : link_.sent) {
      const wire::Message& message = message_of(sent);
      if (message.seq() != seq_) continue;
      const auto payload = payload_of(sent);
      return {static_cast<mv_status>(message.status()), message.text() != nullptr ? message.text()->str() : "",
              {payload.begin(), payload.end()}};
    }
    return {};  // acknowledged later: this is no error
  }

  struct Change {
    codec::Spec codec;
    std::vector<std::byte> payload;
    uint64_t count = kCount, rows = 0;
    wire::Write write = wire::Write::Add;
    uint32_t times = 1;
  };
  Answer change(const Change& what) {
    auto& fbb = builder_.fbb();
    const bool is_encoded = !what.codec.name.empty() || !what.codec.parameters.empty();
    const auto codec = is_encoded ? wire::CreateCodecDirect(fbb, what.codec.name.c_str(), &what.codec.parameters) : 0;
    const auto body = wire::CreateChange(fbb, 0, what.write, 0, what.count, what.rows, 0, 0, 1, 0, 0, codec, what.times);
    return ask(builder_.finish_small(wire::Body::Change, body, what.payload));
  }
  Answer get(const codec::Spec& spec) {
    auto& fbb = builder_.fbb();
    const auto codec = wire::CreateCodecDirect(fbb, spec.name.c_str(), &spec.parameters);
    return ask(builder_.finish(wire::Body::Get, wire::CreateGet(fbb, 0, 0, kCount, 0, true, 0, 0, 0, codec)));
  }
  std::vector<float> values() {
    std::vector<float> values(kCount);
    server_.shard(0)->read(shard::kNoWorker, 0, kCount, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

 private:
  void join(base::Peer peer, int32_t role) {
    cluster::Member member;
    member.rank = static_cast<uint32_t>(view_.members.size());
    member.role = role;
    member.peer = peer;
    view_.members.push_back(member);
  }
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef& staged) override {
    server_.on_request(asked, request, payload, staged);
  }
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked&) override {}

  StillClock clock_;
  KeepingLink link_;
  rpc::Server rpc_{link_, *this};
  base::Pool pool_{4096, 1};
  cluster::View view_;
  table::Server server_{clock_, rpc_, pool_, false};
  wire::FrameBuilder builder_;
  uint64_t seq_ = 0;
};

codec::Spec spec_of(const char* text) { return codec::parse(text).value(); }
std::vector<std::byte> bytes(std::initializer_list<unsigned> values) {
  std::vector<std::byte> out;
  for (const unsigned value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

void valid_changes_are_added(void**) {
  Serving serving;
  const auto change = Serving::Change{spec_of("2bit threshold=2"), bytes({0b11100011, 0, 0, 0b11, 0b10000000, 0, 0, 0})};
  assert_int_equal(serving.change(change).status, MV_OK);
  assert_int_equal(serving.change(change).status, MV_OK);
  const auto values = serving.values();
  const float expected[] = {4, -4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, -4, 0, 0, 0};
  assert_memory_equal(values.data(), expected, sizeof expected);
}

void everything_else_is_refused(void**) {
  Serving serving;
  const codec::Spec two = spec_of("2bit");
  const std::vector<std::byte> eight(8), seven(7), many(80);
  const auto refused = [&](const Serving::Change& change, const char* part) {
    const auto answer = serving.change(change);
    if (answer.status != MV_EPROTOCOL || answer.text.find(part) == std::string::npos)
      fail_msg("%d, \"%s\", not %s", answer.status, answer.text.c_str(), part);
  };
  refused({two, seven}, "8 bytes has a payload of 7");
  refused({two, many}, "8 bytes has a payload of 80");
  refused({two, {}}, "has a payload of 0");
  refused({two, eight, uint64_t{1} << 62}, "elements 0");
  refused({two, eight, kCount, 0, wire::Write::Set}, "only adds");
  refused({two, eight, 0, 1}, "only dense floating-point tables");
  refused({{"3bit", {}}, eight}, "3bit");
  refused({{"", {1, 2}}, eight}, "");
  refused({{"2bit", {}}, eight}, "parameters");
  refused({{"2bit", {-1}}, eight}, "above 0");
  refused({{"int8", {0}}, many}, "at least 16");
  const codec::Spec top = spec_of("topk k=2");
  refused({top, bytes({0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}, "no encoder produces");
  refused({top, bytes({5, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}, "no encoder produces");
  for (const float value : serving.values()) assert_true(value == 0);
  Serving integers(MV_I32);
  assert_int_equal(integers.change({two, eight}).status, MV_EPROTOCOL);
}

void values_are_encoded_on_request(void**) {
  Serving serving;
  std::vector<std::byte> ones(8, std::byte{0xff});
  assert_int_equal(serving.change({spec_of("2bit threshold=1"), ones}).status, MV_OK);
  const auto answer = serving.get(spec_of("fp16"));
  assert_int_equal(answer.payload.size(), 2 * kCount);
  for (size_t i = 0; i < kCount; ++i) assert_true(answer.payload[2 * i] == std::byte{0} && answer.payload[2 * i + 1] == std::byte{0x3c});
  assert_int_equal(serving.get({"fp17", {}}).status, MV_EPROTOCOL);
}

// ------------------------------------------------------------ several changes in one message

/// An id and a value for each.
std::vector<std::byte> rows_of(std::initializer_list<std::pair<int64_t, float>> changes) {
  std::vector<std::byte> out;
  for (const auto& [row, value] : changes) {
    const size_t at = out.size();
    out.resize(at + sizeof row + sizeof value);
    std::memcpy(&out[at], &row, sizeof row);
    std::memcpy(&out[at + sizeof row], &value, sizeof value);
  }
  return out;
}
std::vector<std::byte> whole(std::initializer_list<float> each) {
  std::vector<float> values;
  for (const float value : each) values.insert(values.end(), kCount, value);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

void changes_that_come_together_are_applied_in_their_order(void**) {
  for (const int64_t staleness : {int64_t{MV_UNSET}, int64_t{2}}) {
    Serving serving(MV_F32, staleness);
    assert_int_equal(serving.change({{}, whole({1e9f, 1, -1e9f}), kCount, 0, wire::Write::Add, 3}).status, MV_OK);
    assert_true(serving.values()[0] == 0 && serving.values()[kCount - 1] == 0);  // another order gives 1
    assert_int_equal(serving.change({{}, rows_of({{3, 5}, {3, 6}, {4, 7}}), 0, 1, wire::Write::Set, 3}).status, MV_OK);
    assert_true(serving.values()[3] == 6 && serving.values()[4] == 7 && serving.values()[5] == 0);
  }
}

void one_that_is_wrong_leaves_the_others_alone(void**) {
  Serving serving;
  const auto answer = serving.change({{}, rows_of({{3, 5}, {int64_t{kCount}, 6}, {4, 7}}), 0, 1, wire::Write::Add, 3});
  assert_int_equal(answer.status, MV_ERANGE);
  assert_true(serving.values()[3] == 5 && serving.values()[4] == 7);
}

void wrong_numbers_of_changes_are_refused(void**) {
  Serving serving, merging(MV_F32, MV_UNSET, MV_MERGE);
  const auto refused = [](Serving& by, const Serving::Change& change) {
    const auto answer = by.change(change);
    if (answer.status != MV_EPROTOCOL) fail_msg("%u times, %zu bytes: %d, \"%s\"", change.times, change.payload.size(), answer.status, answer.text.c_str());
    for (const float value : by.values()) assert_true(value == 0);
  };
  refused(serving, {{}, whole({1, 1}), kCount, 0, wire::Write::Add, 0});
  refused(serving, {{}, whole({1, 1}), kCount, 0, wire::Write::Add, 3});
  refused(serving, {{}, whole({1, 1}), kCount, 0, wire::Write::Add, 1});
  refused(serving, {{}, {}, 0, 0, wire::Write::Add, UINT32_MAX});  // nothing, very often
  refused(serving, {{}, whole({1, 1}), kCount, 0, wire::Write::Add, UINT32_MAX});
  refused(serving, {{}, rows_of({{3, 5}}), 0, uint64_t{1} << 61, wire::Write::Add, 8});  // the sizes overflow
  refused(serving, {spec_of("2bit"), std::vector<std::byte>(16), kCount, 0, wire::Write::Add, 2});
  refused(merging, {{}, whole({1, 1}), kCount, 0, wire::Write::Add, 2});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(valid_changes_are_added),
      cmocka_unit_test(everything_else_is_refused),
      cmocka_unit_test(values_are_encoded_on_request),
      cmocka_unit_test(changes_that_come_together_are_applied_in_their_order),
      cmocka_unit_test(one_that_is_wrong_leaves_the_others_alone),
      cmocka_unit_test(wrong_numbers_of_changes_are_refused),
  };
  return cmocka_run_group_tests_name("table/changes", tests, nullptr, nullptr);
}
