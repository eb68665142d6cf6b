// engine/table: rows longer than a stripe arrive as elements; a merged round still replaces the elements that it does not name.

#include <algorithm>
#include <map>
#include <vector>

#include "base/pool.hpp"
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

constexpr base::Peer kServer = 1, kWorkers[] = {7, 8};
constexpr uint64_t kRows = 3, kCols = 17'000, kStripe = 16'384;  // of f64, in slices

/// One server with one table, and two workers' streams to it.
class Serving final : private rpc::Service {
 public:
  explicit Serving(const char* updater) {
    join(kServer, MV_ROLE_SERVER);
    for (const base::Peer worker : kWorkers) join(worker, MV_ROLE_WORKER);
    server_.start(view_, kServer);
    shard::Spec spec;
    spec.name = "t";
    spec.kind = MV_MATRIX;
    spec.dtype = MV_F64;
    spec.rows = kRows;
    spec.cols = kCols;
    spec.flags = MV_MERGE | shard::kSliced;
    spec.updater.name = updater;
    assert_int_equal(shard::stripe_elements(spec), kStripe);
    auto& fbb = builder_.fbb();
    for (const base::Peer worker : kWorkers) {
      ask(worker, builder_.finish(wire::Body::Create, wire::CreateCreate(fbb, fbb.CreateVector({table::write_spec(fbb, spec)}))));
      ask(worker, builder_.finish(wire::Body::Ready, wire::CreateReady(fbb, fbb.CreateVector({uint32_t{0}}))));
    }
  }

  /// A worker's add of these rows, split as clients split it.
  void add(base::Peer worker, uint64_t round, const std::vector<uint64_t>& rows, double value) {
    std::vector<shard::Range> parts;
    for (const uint64_t row : rows)
      for (uint64_t first = row * kCols, end = 0; first < (row + 1) * kCols; first = end) {
        end = std::min((row + 1) * kCols, (first / kStripe + 1) * kStripe);
        parts.push_back({first, end - first});
      }
    if (parts.empty()) parts.push_back({0, 0});
    for (uint32_t i = 0; i < parts.size(); ++i) {
      const std::vector<double> values(parts[i].count, value);
      const auto bytes = std::as_bytes(std::span(values));
      const auto body = wire::CreateChange(builder_.fbb(), 0, wire::Write::Add, parts[i].first, parts[i].count, 0, 0, round,
                                           static_cast<uint32_t>(parts.size()), 0, i);
      ask(worker, builder_.finish(wire::Body::Change, body, base::Payload::copy(bytes)));
    }
  }
  /// Each row's value; asserts that all elements of a row are equal.
  std::vector<double> values() {
    std::vector<double> all(kRows * kCols), values;
    server_.shard(0)->read(shard::kNoWorker, 0, all.size(), reinterpret_cast<std::byte*>(all.data()));
    for (uint64_t row = 0; row < kRows; ++row) {
      const auto its = std::span(all).subspan(row * kCols, kCols);
      assert_true(std::ranges::all_of(its, [&](double value) { return value == its.front(); }));
      values.push_back(its.front());
    }
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
  void ask(base::Peer worker, base::Frame frame) {
    wire::stamp(frame, ++seq_[worker], 0);
    link_.sent.clear();
    rpc_.on_message(worker, unit::message_of(frame), unit::payload_of(frame), nullptr);
    for (const base::Frame& sent : link_.sent) assert_int_equal(unit::message_of(sent).status(), MV_OK);
  }
  base::SinkRef place(const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef& staged) override {
    server_.on_request(asked, request, payload, staged);
  }
  void on_data(const rpc::Asked&, std::span<const std::byte>, const base::SinkRef&) override {}
  void on_cancel(const rpc::Asked&) override {}

  unit::StillClock clock_;
  unit::KeepingLink link_;
  rpc::Server rpc_{link_, *this};
  base::Pool pool_{4096, 1};
  cluster::View view_;
  table::Server server_{clock_, rpc_, pool_, false};
  wire::FrameBuilder builder_;
  std::map<base::Peer, uint64_t> seq_;
};

using Values = std::vector<double>;

void a_round_replaces_rows_that_no_add_names(void**) {
  Serving serving("replace");
  serving.add(kWorkers[0], 0, {0, 1, 2}, 1);
  serving.add(kWorkers[1], 0, {0, 1, 2}, 2);
  assert_true((serving.values() == Values{3, 3, 3}));
  serving.add(kWorkers[0], 1, {1}, 4);
  serving.add(kWorkers[1], 1, {1, 2}, 5);
  assert_true((serving.values() == Values{0, 9, 5}));
  serving.add(kWorkers[0], 2, {0}, 6);
  serving.add(kWorkers[1], 2, {}, 0);
  assert_true((serving.values() == Values{6, 0, 0}));
  for (const base::Peer worker : kWorkers) serving.add(worker, 3, {}, 0);
  assert_true((serving.values() == Values{0, 0, 0}));
}

void a_round_of_sums_leaves_other_rows_alone(void**) {
  Serving serving("add");
  serving.add(kWorkers[0], 0, {0, 2}, 1);
  serving.add(kWorkers[1], 0, {2}, 2);
  serving.add(kWorkers[0], 1, {1}, 4);
  serving.add(kWorkers[1], 1, {}, 0);
  assert_true((serving.values() == Values{1, 4, 3}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_round_replaces_rows_that_no_add_names),
      cmocka_unit_test(a_round_of_sums_leaves_other_rows_alone),
  };
  return cmocka_run_group_tests_name("ps/long_rows", tests, nullptr, nullptr);
}
