#include "engine/table/server/table.hpp"

#include <algorithm>
#include <cstring>

#include "codec/wire.hpp"
#include "engine/table/server/gate_decisions.hpp"

namespace mv::table {

Table::Table(GateDecisions& decisions, uint32_t number, shard::SpecRef described, shard::Consistency consistency)
    : number(number),
      shared_spec(std::move(described)),
      spec(*shared_spec),
      consistency(consistency),
      decisions_(decisions),
      merge_gate_(*this, this->spec.name) {
  if (consistency == shard::Consistency::kSync) sync_ = std::make_unique<SyncGate>(*this, this->spec.name);
  if (has_clocks()) stale_ = std::make_unique<StaleGate>(*this, this->spec.name, static_cast<uint64_t>(std::max<int64_t>(0, this->spec.staleness)));
}

// ---- checks of requests

base::Status Table::check_range(uint64_t first, uint64_t count, uint64_t rows) const {
  const uint64_t elements = shard->elements();
  if (count > elements || first > elements - count || rows > wire::kMaxPayloadBytes / 8)
    return base::error(MV_EPROTOCOL, "table \"{}\": elements {} .. {} are outside a shard of {}", spec.name, first, first + count, elements);
  return {};
}

base::Result<std::vector<int64_t>> Table::take_rows(std::span<const std::byte> payload, uint64_t rows, const Roster& roster) const {
  if (payload.size() < rows * sizeof(int64_t))
    return base::error(MV_EPROTOCOL, "table \"{}\": {} row ids do not fit in {} bytes", spec.name, rows, payload.size());
  std::vector<int64_t> ids(rows);
  std::memcpy(ids.data(), payload.data(), rows * sizeof(int64_t));
  const auto end = static_cast<int64_t>(shard->rows().count);
  const auto fits = [&](int64_t row) {
    if (!spec.is_keyed()) return row >= 0 && row < end;
    return spec.has_row(row) && shard::server_of(spec, roster.servers(), row) == roster.index();
  };
  const auto bad = std::find_if_not(ids.begin(), ids.end(), fits);
  if (bad != ids.end()) return base::error(MV_ERANGE, "table \"{}\": row {} is not in this shard", spec.name, *bad);
  return ids;
}

base::Result<codec::CodecRef> Table::codec_of(const wire::Codec* wanted, uint64_t rows) const {
  if (wanted == nullptr) return codec::CodecRef();
  if (rows > 0 || spec.is_keyed() || !tensor::is_floating(spec.dtype))
    return base::error(MV_EPROTOCOL, "table \"{}\" is {}: only dense floating-point tables can be encoded, and not by row", spec.name,
                       spec.describe());
  auto read = codec::from_wire(wanted);
  if (!read.ok()) return base::error(MV_EPROTOCOL, "table \"{}\": {}", spec.name, read.status().text());
  return read;
}

uint64_t Table::bytes_of(const HeldChange& change) const {
  if (change.codec != nullptr) return change.codec->encoded_bytes(change.count);
  if (change.rows == 0) return change.count * spec.element_bytes();
  return change.rows * (sizeof(int64_t) + (change.write == wire::Write::Erase ? 0 : spec.row_bytes()));
}

bool Table::gathers(const wire::Change& change) const {
  return consistency == shard::Consistency::kMerge && change.write() == wire::Write::Add && change.codec() == nullptr && change.offered() == 0 &&
         change.times() == 1 && change.rows() == 0 && change.count() > 0 && !spec.is_keyed() && spec.row_bytes() <= shard::stripe_bytes(spec);
}

// ---- the gate

void Table::set_workers(const WorkerNames& names) {
  if (sync_ != nullptr) sync_->set_workers(*names);
  has_clocks() ? stale_->set_workers(names) : merge_gate_.set_workers(names);
}

void Table::finished(size_t worker) {
  newcomers_.erase(worker);
  if (sync_ != nullptr) sync_->finished(worker);
  has_clocks() ? stale_->finished(worker) : merge_gate_.finished(worker);
}

std::vector<base::Peer> Table::lost(size_t worker, const base::Status& why) {
  if (newcomers_.erase(worker) > 0) return {};  // nobody waits for it
  if (!has_clocks()) return merge_gate_.lost(worker, why);
  if (sync_ != nullptr) sync_->lost(worker, why);
  stale_->lost(worker, why);
  return {};
}

void Table::show_clock(bool on) {
  if (has_clocks()) return;
  hides_clock_ = !on;
  publish_clock();
}

void Table::begins_here(size_t worker) {
  if (newcomers_.erase(worker) == 0) return;
  if (sync_ != nullptr) sync_->joined(worker);
  has_clocks() ? stale_->joined(worker) : merge_gate_.joined(worker);
  publish_clock();
}

bool Table::can_begin(size_t worker, uint64_t clock, SyncGate::Count first) const {
  return sync_ != nullptr ? sync_->can_begin(first) : has_clocks() || merge_gate_.can_begin(worker, clock);
}

void Table::begins(size_t worker, uint64_t clock, SyncGate::Count first) {
  newcomers_.erase(worker);
  if (sync_ != nullptr) sync_->begins(worker, first);
  if (has_clocks()) stale_->begins(worker, clock);
  begin_clock(worker, clock);
}

void Table::steps_back(size_t worker) {
  if (!newcomers_.insert(worker).second) return;
  if (sync_ != nullptr) sync_->finished(worker);
  has_clocks() ? stale_->finished(worker) : merge_gate_.finished(worker);
  publish_clock();
}

void Table::restart(uint64_t clock) {
  lost_rounds_.clear();  // they belong to another history
  if (consistency == shard::Consistency::kMerge) merge_gate_.restart(clock);
  if (has_clocks()) stale_->restart(clock);
  publish_clock();
}

void Table::begin_clock(size_t worker, uint64_t clock) {
  has_clocks() ? stale_->clock(worker, clock) : merge_gate_.begins(worker, clock);
  publish_clock();
}

bool Table::withdraw(size_t worker, const rpc::Asked& asked, std::string* missing) {
  if (consistency == shard::Consistency::kStale) return stale_->withdraw(asked, missing);
  if (consistency == shard::Consistency::kMerge) return merge_gate_.withdraw(asked, missing);
  return sync_->withdraw(worker, asked, missing);
}

uint64_t Table::least_clock() const {
  const uint64_t least = has_clocks() ? stale_->least() : 0;
  return least != UINT64_MAX ? least : 0;
}

Tally Table::tally(size_t worker) const {
  Tally tally = consistency == shard::Consistency::kSync ? sync_->tally(worker) : Tally{static_cast<uint32_t>(worker), 0, 0, 0};
  tally.clock = clock_of(worker);
  return tally;
}

std::vector<GateWait> Table::waits() const {
  if (consistency == shard::Consistency::kStale) return stale_->waits();
  if (consistency == shard::Consistency::kMerge) return merge_gate_.waits();
  return sync_->waits();
}

void Table::publish_clock() {
  if (shard == nullptr || (consistency != shard::Consistency::kStale && consistency != shard::Consistency::kMerge)) return;
  const uint64_t merged = hides_clock_ ? 0 : merge_gate_.merged();
  const uint64_t clock = consistency == shard::Consistency::kMerge ? merged : stale_->least();
  shard->least_clock.store(clock, std::memory_order_release);
  shard->publish_clock(clock);
}

// ---- decisions of the gate

void Table::apply_change(const rpc::Asked& asked) { decisions_.apply_change(*this, asked); }
void Table::grant_change(const rpc::Asked& asked) { decisions_.grant_change(asked); }
void Table::serve_get(const rpc::Asked& asked) { decisions_.serve_get(*this, asked); }
void Table::merge(std::span<const rpc::Asked> parts) { decisions_.merge(*this, parts); }
void Table::accept(const rpc::Asked& asked) { decisions_.accept(*this, asked); }
void Table::fail_gated(const rpc::Asked& asked, const base::Status& why) { decisions_.fail(*this, asked, why); }

}  // namespace mv::table
