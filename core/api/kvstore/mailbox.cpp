#include "api/kvstore/mailbox.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>

namespace mv::kvstore {

namespace {

/// Numbers and bytes of a row.
constexpr uint64_t kCols = 512, kRowBytes = kCols * sizeof(int64_t);
/// Intervals at which collect() polls for answers, and checks whether the workers are still there.
constexpr base::Nanos kPause = std::chrono::milliseconds(5), kLongPause = std::chrono::milliseconds(500);

// Rows: for each worker its enrolment, its header, and the data.
int64_t enrolment_row(size_t worker) { return static_cast<int64_t>(2 * worker); }
int64_t header_row(size_t worker) { return static_cast<int64_t>(2 * worker + 1); }
std::vector<int64_t> data_rows(size_t worker, uint64_t bytes) {
  std::vector<int64_t> rows((bytes + kRowBytes - 1) / kRowBytes);
  std::iota(rows.begin(), rows.end(), static_cast<int64_t>((worker + 1) << 32));
  return rows;
}

api::Rows rows_of(std::span<const int64_t> ids) { return {ids.data(), ids.size(), false}; }

}  // namespace

base::Result<std::unique_ptr<Mailbox>> Mailbox::make(api::Node& node, const std::string& store) {
  shard::Spec spec;
  spec.name = store.substr(0, store.find('/')) + " (between workers)";
  spec.kind = MV_KEYVALUE;
  spec.dtype = MV_I64;
  spec.cols = kCols;
  spec.updater = {"assign", {}};
  auto table = node.create_table(spec, {});
  if (!table.ok()) return table.status();
  return std::unique_ptr<Mailbox>(new Mailbox(node, std::move(table).value()));
}

base::Result<int64_t> Mailbox::read_number(int64_t row) {
  std::array<int64_t, kCols> numbers{};
  const base::Status failed = table_->peek(rows_of({&row, 1}), {numbers.data(), kCols, MV_I64}, {}).status;
  if (!failed.ok()) return failed;
  return numbers[0];
}

base::Result<Mailbox::Header> Mailbox::read_header(size_t worker) {
  const int64_t row = header_row(worker);
  std::array<int64_t, kCols> numbers{};
  const base::Status failed = table_->peek(rows_of({&row, 1}), {numbers.data(), kCols, MV_I64}, {}).status;
  if (!failed.ok()) return failed;
  return Header{static_cast<State>(numbers[0]), static_cast<uint64_t>(numbers[1])};
}

base::Status Mailbox::write_row(int64_t row, int64_t first, int64_t second) {
  std::array<int64_t, kCols> numbers{};
  numbers[0] = first;
  numbers[1] = second;
  return table_->set(rows_of({&row, 1}), {numbers.data(), kCols, MV_I64}, {}).status;
}

base::Status Mailbox::enrol(bool on) { return write_row(enrolment_row(self()), on ? 1 : 0, 0); }

base::Result<Mailbox::Wish> Mailbox::wish() {
  const auto header = read_header(self());
  if (!header.ok()) return header.status();
  const State state = header.value().state;
  return state == kWanted ? Wish::kGive : state == kLeft ? Wish::kTake : Wish::kNothing;
}

/// Writes the header last: a worker that sees it finds all of the data.
base::Status Mailbox::write(size_t worker, State state, const Bytes& bytes) {
  const auto rows = data_rows(worker, bytes.size());
  std::vector<int64_t> numbers(rows.size() * kCols);
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  if (!rows.empty())
    if (base::Status failed = table_->set(rows_of(rows), {numbers.data(), numbers.size(), MV_I64}, {}).status; !failed.ok()) return failed;
  return write_row(header_row(worker), state, static_cast<int64_t>(bytes.size()));
}

base::Result<Mailbox::Bytes> Mailbox::fetch(size_t worker, uint64_t bytes) {
  const auto rows = data_rows(worker, bytes);
  std::vector<int64_t> numbers(rows.size() * kCols);
  base::Status failed;
  if (!rows.empty()) failed = table_->peek(rows_of(rows), {numbers.data(), numbers.size(), MV_I64}, {}).status;
  if (failed.ok()) failed = write_row(header_row(worker), kNone, 0);
  if (failed.ok() && !rows.empty()) failed = table_->erase(rows_of(rows), {}).status;
  if (!failed.ok()) return failed;
  Bytes taken(bytes);
  if (bytes > 0) std::memcpy(taken.data(), numbers.data(), bytes);
  return taken;
}

base::Status Mailbox::give(const Bytes& bytes) { return write(self(), kGiven, bytes); }
base::Status Mailbox::leave_for(size_t worker, const Bytes& bytes) { return write(worker, kLeft, bytes); }

base::Result<Mailbox::Bytes> Mailbox::take() {
  const auto header = read_header(self());
  if (!header.ok()) return header.status();
  return fetch(self(), header.value().bytes);
}

/// By worker, whether it has finished or is lost: then its residuals are lost too.
base::Result<std::vector<bool>> Mailbox::gone() {
  const auto peers = node_.examine_peers();
  if (!peers.ok()) return peers.status();
  std::map<int64_t, bool> by_rank{{node_.identity().rank, false}};  // in the order of worker ids
  for (const api::PeerReport& peer : peers.value())
    if ((peer.role & MV_ROLE_WORKER) != 0) by_rank[peer.rank] = peer.state != api::PeerReport::State::kHere;
  std::vector<bool> gone;
  for (const auto& [rank, is_gone] : by_rank) gone.push_back(is_gone);
  gone.resize(static_cast<size_t>(node_.identity().num_workers));
  return gone;
}

base::Result<std::vector<Mailbox::Bytes>> Mailbox::collect(base::Nanos timeout) {
  std::vector<Bytes> all(static_cast<size_t>(node_.identity().num_workers));
  std::vector<size_t> asked;
  for (size_t worker = 0; worker < all.size(); ++worker) {
    if (worker == self()) continue;
    const auto enrolled = read_number(enrolment_row(worker));
    if (!enrolled.ok()) return enrolled.status();
    if (enrolled.value() == 0) continue;
    if (base::Status failed = write_row(header_row(worker), kWanted, 0); !failed.ok()) return failed;
    asked.push_back(worker);
  }
  for (base::Nanos waited{0}; !asked.empty(); waited += kPause) {
    for (auto worker = asked.begin(); worker != asked.end();) {
      const auto header = read_header(*worker);
      if (!header.ok()) return header.status();
      if (header.value().state != kGiven) {
        ++worker;
        continue;
      }
      auto given = fetch(*worker, header.value().bytes);
      if (!given.ok()) return given.status();
      all[*worker] = std::move(given).value();
      worker = asked.erase(worker);
    }
    if (waited % kLongPause == kLongPause - kPause) {
      const auto gone = this->gone();
      if (!gone.ok()) return gone.status();
      std::erase_if(asked, [&](size_t worker) { return gone.value()[worker]; });
    }
    if (asked.empty()) break;
    if (waited >= timeout)
      return base::error(MV_ETIMEOUT, "worker {} does not enter kv_barrier(), in which it must hand over its codec's residuals", asked.front());
    if (base::Status paused = node_.wait_until([] { return false; }, kPause); paused.code() != MV_ETIMEOUT) return paused;
  }
  return all;
}

}  // namespace mv::kvstore
