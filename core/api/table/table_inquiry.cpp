// TableHandle: calls on a whole table: info, clock, updater, scan.

#include "api/call/wait_for.hpp"
#include "api/table/table_handle.hpp"
#include "shard/updater/updater.hpp"

namespace mv::api {

namespace {

/// Cursors of a scan over all servers: the server's number above that server's own cursor, below 2^53 in all.
constexpr int kServerShift = 41;
constexpr int64_t kCursorMask = (int64_t{1} << kServerShift) - 1;

}  // namespace

base::Result<TableInfo> TableHandle::info() {
  TableInfo info;
  info.spec = spec_;
  for (size_t server = 0; server < table_->servers.size(); ++server)
    info.servers += shard::has_part(spec_, table_->servers.size(), server) ? 1 : 0;
  const table::Used used = uses_.read(spec_);
  info.adds = used.calls(table::Use::kAdd);
  info.gets = used.calls(table::Use::kGet);
  info.clock = table_->now();
  const auto stats = wait_for<table::TableStats>(calls_, [this, until = calls_.deadline({}, false)](auto told) {
    calls_.member().tables().inquiries().stat(table_, until, told);
  });
  if (!stats.ok()) return stats.status();
  info.usage = stats.value().usage;
  info.spec.updater = stats.value().updater;
  info.bytes = info.usage.stored * spec_.row_bytes();
  return info;
}

base::Status TableHandle::clock() {
  if (const base::Status wrong = usable(); !wrong.ok()) return wrong;
  if (table_->consistency == shard::Consistency::kMerge) return {};  // its clock counts adds
  const uint64_t clock = table_->clock.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (table_->consistency == shard::Consistency::kStale)
    calls_.loop().post([tables = &calls_.member().tables().catalogue(), table = table_, clock] { tables->clock(table, clock); });
  return {};
}

base::Status TableHandle::leave_rounds() {
  if (table_->consistency == shard::Consistency::kMerge)
    calls_.loop().post([tables = &calls_.member().tables().catalogue(), table = table_] { tables->clock(table, UINT64_MAX); });
  return {};
}

Started TableHandle::set_updater(const shard::UpdaterSpec& updater, const CallOptions& options) {
  if (const base::Status wrong = shard::check_updater(updater, spec_.dtype); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  if (changes_own_)
    if (const base::Status failed = own_->set_updater(updater); !failed.ok()) return {failed, nullptr};
  table_->open_changes.fetch_add(1, std::memory_order_relaxed);
  const CallRef call = calls_.make_call(options, false);
  const size_t skip = changes_own_ ? own_server() : table::kNoServer;
  return calls_.start(call, options, [tables = &calls_.member().tables().catalogue(), table = table_, updater, skip, call] {
    tables->set_updater(table, updater, skip, call);
  });
}

base::Result<Scanned> TableHandle::scan(int64_t cursor, std::span<int64_t> rows, const MutableData& data) {
  if (!spec_.is_keyed()) return base::error(MV_EINVAL, "table \"{}\" is {}: read it with get", spec_.name, spec_.describe());
  const auto servers = static_cast<int64_t>(table_->servers.size());
  if (cursor < 0 || cursor >> kServerShift >= servers)
    return base::error(MV_EINVAL, "table \"{}\": {} is not a cursor of a scan; begin with 0", spec_.name, cursor);
  if (rows.empty()) return base::error(MV_EINVAL, "table \"{}\": the scan has room for no row", spec_.name);
  if (data.count > 0)
    if (const base::Status wrong = check_size(spec_, rows.size(), data.count, data.dtype); !wrong.ok()) return wrong;
  if (const base::Status wrong = usable(); !wrong.ok()) return wrong;

  const auto server = static_cast<size_t>(cursor >> kServerShift);
  const std::span values(static_cast<std::byte*>(data.values), data.count > 0 ? rows.size() * spec_.row_bytes() : 0);
  const auto chunk = wait_for<table::ScannedRows>(calls_, [=, this, until = calls_.deadline({}, false)](auto told) {
    calls_.member().tables().inquiries().scan(table_, server, cursor & kCursorMask, rows, values, until, told);
  });
  if (!chunk.ok()) return chunk.status();
  Scanned scanned{chunk.value().found, chunk.value().next};
  const int64_t own = static_cast<int64_t>(server);
  if (scanned.next >= 0)
    scanned.next |= own << kServerShift;
  else if (own + 1 < servers)
    scanned.next = (own + 1) << kServerShift;
  return scanned;
}

}  // namespace mv::api
