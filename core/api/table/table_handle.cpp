#include "api/table/table_handle.hpp"

#include "base/per_thread.hpp"
#include "base/prefetch.hpp"
#include "base/undo.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/table/gates/stale_gate.hpp"
#include "math/kernels.hpp"
#include "shard/combine.hpp"
#include "shard/on_device.hpp"
#include "shard/updater/updater.hpp"

namespace mv::api {

namespace {

/// Fire-and-forget changes up to this size take the fast path.
constexpr size_t kSmallBytes = 2048;
/// How long a get from mapped segments waits for this worker's own changes. It then becomes a request,
/// which waits at the server.
constexpr base::Nanos kOwnChanges = std::chrono::milliseconds(50);
/// From this size on, a get from a merging table first waits for the round by a message, and then reads in place.
constexpr uint64_t kReadHereBytes = 64 << 10;

std::vector<int64_t> every_row(const TableSpec& spec) {
  std::vector<int64_t> rows(spec.rows);
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

}  // namespace

std::vector<base::Filling::Range> ranges_of_servers(const TableSpec& spec, size_t servers) {
  std::vector<base::Filling::Range> ranges;
  for (size_t server = 0; server < servers; ++server) {
    const shard::Range rows = shard::part_of(spec, servers, server);
    if (rows.count > 0) ranges.push_back({rows.first * spec.row_bytes(), rows.end() * spec.row_bytes()});
  }
  return ranges;
}

base::Status check_size(const TableSpec& spec, uint64_t rows, uint64_t count, mv_dtype dtype) {
  if (dtype != MV_RAW && dtype != spec.dtype)
    return base::error(MV_EDTYPE, "table \"{}\" holds {}, {} was given", spec.name, tensor::dtype_name(spec.dtype),
                       tensor::dtype_name(dtype));
  const uint64_t unit = dtype == MV_RAW ? spec.element_bytes() : 1;
  if (rows <= UINT64_MAX / (spec.cols * unit) && count == rows * spec.cols * unit) return {};
  return base::error(MV_ESHAPE, "table \"{}\": {} {} given, {} rows x {} columns need {}", spec.name, count,
                     dtype == MV_RAW ? "bytes" : "values", rows, spec.cols, rows * spec.cols * unit);
}

base::Status check_finite(const TableSpec& spec, uint64_t rows, const void* values, tensor::Device* device) {
  if (!spec.rejects_nonfinite() || !tensor::is_floating(spec.dtype)) return {};
  if (device != nullptr) {
    const tensor::Device::Floats all{spec.dtype, values, rows * spec.cols};
    const auto found = device->first_nonfinite({&all, 1});
    if (!found.ok()) return found.status();
    if (found.value() == 1) return {};
  } else if (math::all_finite_bytes(spec.dtype, static_cast<const std::byte*>(values), rows * spec.cols)) {
    return {};
  }
  return base::error(MV_ENONFINITE, "table \"{}\" rejects NaN and infinity (reject_nonfinite)", spec.name);
}

TableHandle::TableHandle(Calls& calls, Mappings& mappings, table::TableViewRef table, std::shared_ptr<shard::Shard> own)
    : calls_(calls),
      table_(std::move(table)),
      spec_(table_->spec),
      own_(std::move(own)),
      all_own_(own_ != nullptr && (table_->servers.size() == 1 || (!spec_.is_keyed() && own_->rows().count == spec_.rows))),
      changes_own_(own_ != nullptr && table_->consistency != shard::Consistency::kMerge),
      is_simple_(all_own_ && table_->consistency == shard::Consistency::kAsync && !spec_.is_keyed()),
      joins_many_(shard::is_small_key(spec_) && !changes_own_ && (table_->consistency == shard::Consistency::kMerge || table_->consistency == shard::Consistency::kAsync)),
      home_(joins_many_ ? static_cast<uint32_t>(shard::home_of(spec_, table_->servers.size())) : 0),
      bytes_(joins_many_ ? static_cast<uint32_t>(spec_.bytes()) : 0),
      mapping_(all_own_ ? nullptr : mappings.map(table_, own_ != nullptr ? own_server() : SIZE_MAX)) {
  table_->uses.open(uses_);
}

size_t TableHandle::own_server() const { return static_cast<size_t>(calls_.identity().server_id); }

base::Status TableHandle::check_rows(const Rows& rows) const {
  if (rows.all && spec_.kind == MV_KEYVALUE)
    return base::error(MV_EINVAL, "table \"{}\" is {}: name the keys", spec_.name, spec_.describe());
  if (rows.all || spec_.kind == MV_KEYVALUE) return {};
  const auto end = static_cast<int64_t>(spec_.rows);
  const int64_t* bad = std::find_if(rows.ids, rows.ids + rows.count, [&](int64_t row) { return row < 0 || row >= end; });
  if (bad == rows.ids + rows.count) return {};
  return base::error(MV_ERANGE, "table \"{}\": row {} is outside 0 .. {}", spec_.name, *bad, end - 1);
}

base::Status TableHandle::check_shape(const Rows& rows, uint64_t count, mv_dtype dtype) const {
  if (const base::Status wrong = check_rows(rows); !wrong.ok()) return wrong;
  return check_size(spec_, rows.all ? spec_.rows : rows.count, count, dtype);
}

/// Fails if the table was destroyed, or if an earlier fire-and-forget add has an unreported error.
base::Status TableHandle::usable() {
  if (own_ != nullptr && own_->destroyed) return base::error(MV_ENOTFOUND, "table \"{}\" was destroyed", spec_.name);
  if (!table_->has_untold) return {};
  base::Status untold;
  calls_.on_loop([&] { untold = calls_.member().tables().changes().take_untold(*table_); });
  if (untold.ok()) return {};
  return base::error(untold.code(), "an earlier change, which did not wait for an answer, failed: {}", untold.text());
}

Started TableHandle::finished_here(const CallOptions& options) {
  if (options.mode != Mode::kAsync) return {};
  const CallRef call = calls_.make_call(options, false);
  call->complete({});
  return {{}, call};
}

Started TableHandle::add(const Rows& rows, const ConstData& data, const CallOptions& options) {
  return change(wire::Write::Add, rows, data, options);
}
bool TableHandle::adds_here(base::Status* status) {
  if (!is_simple_ || spec_.rejects_nonfinite()) return false;  // all values must be known to be finite before any is added
  if (own_->destroyed)
    *status = usable();
  else
    count(table::Use::kAdd, table::Path::kHere, {});
  return true;
}
bool TableHandle::add_here(const shard::Shard::Make& make, base::Status* status) {
  if (!adds_here(status)) return false;
  if (status->ok()) own_->add_made(calls_.identity().worker_id, 0, own_->elements(), make);
  return true;
}
bool TableHandle::add_here(const std::byte* values, base::Status* status) {
  if (!adds_here(status)) return false;
  if (status->ok()) own_->change(wire::Write::Add, calls_.identity().worker_id, 0, own_->elements(), values);
  return true;
}
shard::OnDevice* TableHandle::on_device_here(bool adds, base::Status* status) {
  shard::OnDevice* const shard = is_simple_ ? own_->on_device() : nullptr;
  if (shard == nullptr) return nullptr;
  if (own_->destroyed) *status = usable();
  if (!status->ok()) return nullptr;
  count(adds ? table::Use::kAdd : table::Use::kGet, table::Path::kHere, {});
  return shard;
}
base::Status TableHandle::join_many(table::Use use) {
  base::Status status = usable();
  if (status.ok()) count(use, table::Path::kMessage, {});
  return status;
}
void TableHandle::expect(bool soon) const {
  if (soon && own_ != nullptr) return own_->expect();
  base::prefetch_to_write(&table_->clock);
  if (soon || own_ == nullptr) return;
  base::prefetch(own_.get());
  base::prefetch(&own_->destroyed);
}
bool TableHandle::get_here(std::span<std::byte* const> outs, base::Status* status) {
  if (is_simple_ && !own_->destroyed) {
    count(table::Use::kGet, table::Path::kHere, {});
    own_->read_each(calls_.identity().worker_id, outs);
    return true;
  }
  if (spec_.is_keyed() || (own_ == nullptr && mapping_ == nullptr)) return false;
  *status = usable();
  if (!status->ok()) return true;
  const uint64_t needed = clock_needed(true);
  if (all_own_ && own_is_open(needed)) {
    count_read(table::Use::kGet, table::Path::kHere, {}, needed);
    own_->read_each(calls_.identity().worker_id, outs);
    return true;
  }
  CallOptions at_once;
  at_once.mode = Mode::kAsync;
  if (!fetch_mapped(needed, {}, outs.front(), at_once, status)) return false;
  count_read(table::Use::kGet, table::Path::kMapped, {}, needed);
  for (std::byte* const out : outs.subspan(1)) std::memcpy(out, outs.front(), spec_.bytes());
  return true;
}
Started TableHandle::set(const Rows& rows, const ConstData& data, const CallOptions& options) {
  return change(wire::Write::Set, rows, data, options);
}
Started TableHandle::get(const Rows& rows, const MutableData& data, const CallOptions& options) { return fetch(true, rows, data, options); }
Started TableHandle::peek(const Rows& rows, const MutableData& data, const CallOptions& options) { return fetch(false, rows, data, options); }

base::Status TableHandle::check_change(const Rows& rows, const ConstData& data) {
  if (base::Status wrong = check_shape(rows, data.count, data.dtype); !wrong.ok()) return wrong;
  if (base::Status wrong = check_finite(spec_, rows.all ? spec_.rows : rows.count, data.values, data.device); !wrong.ok()) return wrong;
  return usable();
}

Started TableHandle::change(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options) {
  if (data.device != nullptr) return change_from_device(write, rows, data, options);
  return change_from_host(write, rows, data, nullptr, options);
}

/// @param keep  the owner of the values, which stay in place until the call ends; null: the caller
Started TableHandle::change_from_host(wire::Write write, const Rows& rows, const ConstData& data, std::shared_ptr<const void> keep, const CallOptions& options) {
  if (const base::Status wrong = check_change(rows, data); !wrong.ok()) return {wrong, nullptr};
  Values values{static_cast<const std::byte*>(data.values), bytes_of(rows), std::move(keep)};
  if (rows.all && spec_.is_keyed()) {  // all rows, one by one
    const std::vector<int64_t> ids = every_row(spec_);
    return change_checked(write, {ids.data(), ids.size(), false}, values, options);
  }
  if (rows.all || write != wire::Write::Add) return change_checked(write, rows, values, options);
  // Repeated rows are summed here: an updater must see each row once, and the servers have less to do.
  const auto sums = std::make_shared<shard::Combined>();
  if (!shard::combine(spec_, {rows.ids, rows.count}, values.bytes, sums.get())) return change_checked(write, rows, values, options);
  values = {sums->values.data(), sums->values.size(), sums};
  return change_checked(write, {sums->rows.data(), sums->rows.size(), false}, values, options);
}

Started TableHandle::erase(const Rows& rows, const CallOptions& options) {
  if (!spec_.is_keyed()) return {base::error(MV_EINVAL, "table \"{}\" is {}: its rows can't be erased", spec_.name, spec_.describe()), nullptr};
  if (const base::Status wrong = check_rows(rows); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  return change_checked(wire::Write::Erase, rows, {}, options);
}

/// Changes this process's part at once and the other parts by a request.
Started TableHandle::change_checked(wire::Write write, const Rows& rows, const Values& values, const CallOptions& options) {
  const auto use = static_cast<table::Use>(write);
  if (all_own_ && changes_own_) {
    count(use, table::Path::kHere, rows);
    const auto call = options.mode == Mode::kAsync ? calls_.make_call(options, false) : nullptr;
    change_own(write, rows, values.bytes);
    if (call != nullptr) call->complete({});
    return {{}, call};
  }
  count(use, table::Path::kMessage, rows);
  if (options.mode == Mode::kOneWay && options.priority == 0 && values.size <= kSmallBytes) {
    base::Status status;
    if (forget_small(rows, values, write, options, &status)) return {status, nullptr};
  }
  table::Request request = change_request(write, options);
  request.all = rows.all;
  if (!rows.all) request.rows.assign(rows.ids, rows.ids + rows.count);
  const bool blocking = options.mode == Mode::kBlocking;
  base::Undo give_back([&] { calls_.give_back(request.reserved); });
  if (!blocking) {
    auto token = calls_.reserve(values.size, options);
    if (!token.ok()) return {token.status(), nullptr};
    request.reserved = token.value();
  }
  const std::span<const std::byte> bytes(values.bytes, values.size);
  std::shared_ptr<base::Filling> filling = values.filling;
  if (values.keep != nullptr)
    request.source = base::Payload::kept(bytes, values.keep);
  else if (blocking)
    request.source = base::Payload::lent(bytes);
  else if (rows.all && values.size >= kCopiedAlongBytes && table_->consistency != shard::Consistency::kSync)
    request.source = calls_.begin_snapshot(bytes, ranges_of_servers(spec_, table_->servers.size()), &filling);
  if (request.source == nullptr) request.source = calls_.snapshot(bytes);
  request.filling = filling;
  const bool may_fail = own_ != nullptr && own_->on_device() != nullptr;
  if (changes_own_ && may_fail) change_own(write, rows, values.bytes);  // before anything is under way
  std::function<void()> own_work;
  if ((changes_own_ && !may_fail) || filling != nullptr)
    own_work = [&] {
      while (filling != nullptr && filling->copy_some()) {
      }
      if (changes_own_ && !may_fail) change_own(write, rows, values.bytes);
    };
  const Started started = start_change(std::move(request), options, own_work);
  give_back.keep();
  return started;
}

/// The request fields that all changes by messages share.
table::Request TableHandle::change_request(wire::Write write, const CallOptions& options) {
  table::Request request;
  request.table = table_;
  request.kind = table::OpKind::kChange;
  request.write = write;
  if (changes_own_) request.skip = own_server();
  request.priority = options.priority;
  return request;
}

Started TableHandle::start_change(table::Request&& request, const CallOptions& options, const std::function<void()>& own_work) {
  const bool in_step = counts_calls(table_->consistency);
  const CallRef call = options.mode == Mode::kOneWay ? nullptr : calls_.make_call(options, in_step && request.write == wire::Write::Add);
  const table::OpenChange open(*table_);
  if (call == nullptr) calls_.forget(std::move(request), own_work);
  const Started started = call == nullptr ? Started() : calls_.run(call, options, std::move(request), own_work);
  open.keep();
  return started;
}

/// Fast path for small one-way changes: the caller builds the message. False unless it is one
/// message to a remote server.
bool TableHandle::forget_small(const Rows& rows, const Values& values, wire::Write write, const CallOptions& options,
                               base::Status* status) {
  const size_t servers = table_->servers.size();
  if (counts_calls(table_->consistency)) return false;
  if (rows.all ? servers > 1 && spec_.home == 0 : rows.count == 0) return false;
  // Every server must receive an add to a store's key: it counts them, and may hold rows that this add replaces.
  if (!rows.all && servers > 1 && spec_.updater.name == shard::kReplacing) return false;
  const size_t server = rows.all && spec_.home == 0 ? 0 : shard::server_of(spec_, servers, rows.all ? 0 : rows.ids[0]);
  if (own_ != nullptr && server == own_server()) return false;
  const int64_t first = shard::first_row(spec_, servers, server);
  const size_t row_count = rows.all ? 0 : rows.count, ids_bytes = row_count * sizeof(int64_t);
  alignas(8) std::byte payload[2 * kSmallBytes];
  if (ids_bytes + values.size > sizeof payload) return false;
  for (size_t i = 0; i < row_count; ++i) {
    if (i > 0 && shard::server_of(spec_, servers, rows.ids[i]) != server) return false;
    const int64_t own_number = rows.ids[i] - first;
    std::memcpy(payload + i * sizeof own_number, &own_number, sizeof own_number);
  }
  if (values.size > 0) std::memcpy(payload + ids_bytes, values.bytes, values.size);

  const auto reserved = calls_.reserve(values.size, options);
  if (!reserved.ok()) {
    *status = reserved.status();
    return true;
  }
  base::Undo give_back([&] { calls_.give_back(reserved.value()); });
  const table::SmallForm form{server, write, rows.all ? spec_.elements() : 0, row_count, ids_bytes + values.size};
  calls_.forget_small(table_, form, {payload, ids_bytes + values.size}, reserved.value());
  give_back.keep();
  return true;
}

/// The clock that a part must have reached for a get to read it without asking the gate; 0 if there is no gate.
uint64_t TableHandle::clock_needed(bool gated) const {
  if (!gated) return 0;
  if (table_->consistency == shard::Consistency::kStale)
    return table::StaleGate::needed(static_cast<uint64_t>(spec_.staleness), table_->now());
  if (table_->consistency != shard::Consistency::kMerge) return 0;
  // A merging table's clock counts this worker's adds that have begun. It includes all of them if no change is open.
  return table_->open_changes.load(std::memory_order_acquire) == 0 ? table_->clock.load(std::memory_order_acquire) : UINT64_MAX;
}

bool TableHandle::own_is_open(uint64_t needed) const {
  return own_ != nullptr && own_->least_clock.load(std::memory_order_acquire) >= needed;
}

Started TableHandle::fetch(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options) {
  if (const base::Status wrong = check_shape(rows, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  if (data.device != nullptr) return fetch_to_device(gated, rows, data, options);
  if (rows.all && spec_.is_keyed()) {
    const std::vector<int64_t> ids = every_row(spec_);
    return fetch(gated, {ids.data(), ids.size(), false}, data, options);
  }
  auto* out = static_cast<std::byte*>(data.values);
  if (base::Status status; fetch_in_place(gated, rows, out, options, &status)) return status.ok() ? finished_here(options) : Started{status, nullptr};
  return ask_for(gated, rows, {out, bytes_of(rows)}, nullptr, options);
}

/// A get without a message for the values. False: it needs one.
bool TableHandle::fetch_in_place(bool gated, const Rows& rows, std::byte* out, const CallOptions& options, base::Status* status) {
  const table::Use use = gated ? table::Use::kGet : table::Use::kPeek;
  if (fetch_here(use, rows, out, options, status)) return true;
  // Parts that other workers have not sent yet cannot be read here. Once they are there, reading
  // in place saves two copies.
  const bool reads_here = table_->consistency == shard::Consistency::kMerge && (all_own_ || mapping_ != nullptr);
  if (!gated || !reads_here || options.mode != Mode::kBlocking || bytes_of(rows) < kReadHereBytes) return false;
  *status = wait_for_turn(options);
  return !status->ok() || fetch_here(use, rows, out, options, status);
}

/// Gets by messages, except for this process's part if callers may read it now. With a codec, all by messages.
Started TableHandle::ask_for(bool gated, const Rows& rows, std::span<std::byte> out, const codec::CodecRef& codec, const CallOptions& options,
                             bool keeps_encoded) {
  count(gated ? table::Use::kGet : table::Use::kPeek, table::Path::kMessage, rows);
  const bool own_open = codec == nullptr && own_is_open(clock_needed(gated));
  table::Request request;
  request.table = table_;
  request.kind = table::OpKind::kGet;
  request.gated = gated;
  request.clock = table_->clock.load(std::memory_order_acquire);
  request.all = rows.all;
  if (!rows.all) request.rows.assign(rows.ids, rows.ids + rows.count);
  if (own_open) request.skip = own_server();
  request.destination = out;
  request.codec = codec;
  request.keeps_encoded = keeps_encoded;
  request.priority = options.priority;
  std::function<void()> own_work;
  if (own_open) own_work = [&] { read_own(rows, out.data()); };
  if (own_open && own_->on_device() != nullptr) std::exchange(own_work, nullptr)();  // a device may fail: before anything is under way
  return calls_.run(calls_.make_call(options, gated && table_->consistency != shard::Consistency::kAsync), options, std::move(request), own_work);
}

base::Status TableHandle::wait_for_turn(const CallOptions& options) {
  table::Request request;
  request.table = table_;
  request.kind = table::OpKind::kGet;
  request.all = false;
  request.waits_only = true;
  request.priority = options.priority;
  CallOptions waiting = options;
  waiting.keep_on_interrupt = false;
  return calls_.run(calls_.make_call(waiting, true), waiting, std::move(request), {}).status;
}

bool TableHandle::fetch_here(table::Use use, const Rows& rows, std::byte* out, const CallOptions& options, base::Status* status) {
  const uint64_t needed = clock_needed(use == table::Use::kGet);
  if (all_own_ && own_is_open(needed)) {
    count_read(use, table::Path::kHere, rows, needed);
    read_own(rows, out);
    return true;
  }
  if (!fetch_mapped(needed, rows, out, options, status)) return false;
  count_read(use, table::Path::kMapped, rows, needed);
  return true;
}

bool TableHandle::fetch_mapped(uint64_t needed, const Rows& rows, std::byte* out, const CallOptions& options, base::Status* status) {
  if (mapping_ == nullptr) return false;
  const Mapping::Use use(*mapping_);
  const size_t servers = table_->servers.size();
  const auto may_take = [&](base::Nanos wait) {
    return wait == base::Nanos{0} || (options.mode == Mode::kBlocking && calls_.deadline(options, false) >= calls_.loop().now() + wait);
  };
  for (size_t server = 0; server < servers; ++server) {
    if ((own_ != nullptr && server == own_server()) || !shard::has_part(spec_, servers, server)) continue;
    const shard::SegmentView* reader = mapping_->reader(server);
    if (reader == nullptr) mapping_->ask();
    if (reader == nullptr || !may_take(reader->longest_wait()) || !reader->has_reached(needed)) return false;
  }
  if (own_ != nullptr && shard::has_part(spec_, servers, own_server()) && !own_is_open(needed)) return false;

  // A worker sees its own changes. A request would queue behind them; a direct read has to wait
  // for their acknowledgements.
  const auto seen = [this] { return table_->open_changes.load(std::memory_order_acquire) == 0; };
  if (!seen()) {
    if (options.mode != Mode::kBlocking) return false;
    const base::Nanos limit = std::min(calls_.deadline(options, false), calls_.loop().now() + kOwnChanges);
    if (calls_.loop().drive_until(seen, limit) == transport::Driven::kInterrupted) {
      *status = base::Status(MV_EINTR, "a signal came while this worker's earlier changes were in progress; nothing was read");
      return true;
    }
    if (!seen()) return false;
  }
  return read_mapped(rows, out);
}

/// False if a segment was dropped, or its server kept writing.
bool TableHandle::read_mapped(const Rows& rows, std::byte* out) const {
  const size_t servers = table_->servers.size(), own = own_ != nullptr ? own_server() : SIZE_MAX;
  if (rows.all) {
    if (own_ != nullptr) read_own(rows, out);
    for (size_t server = 0; server < servers; ++server) {
      const shard::Range part = shard::part_of(spec_, servers, server);
      if (server == own || part.count == 0) continue;
      const shard::SegmentView* reader = mapping_->reader(server);
      if (reader == nullptr || !reader->read(0, part.count * spec_.cols, out + part.first * spec_.row_bytes())) return false;
    }
    return true;
  }
  for (size_t begin = 0; begin < rows.count;) {  // runs of rows on one server
    const size_t server = shard::server_of(spec_, servers, rows.ids[begin]);
    const auto last = static_cast<int64_t>(shard::part_of(spec_, servers, server).end());
    const int64_t first = shard::first_row(spec_, servers, server);
    size_t end = begin + 1;
    while (end < rows.count && rows.ids[end] >= first && rows.ids[end] < last) ++end;
    std::byte* to = out + begin * spec_.row_bytes();
    if (server == own) {
      for (size_t i = begin; i < end; ++i) {
        const int64_t row = rows.ids[i] - first;
        own_->read_rows(calls_.identity().worker_id, {&row, 1}, out + i * spec_.row_bytes());
      }
    } else {
      const shard::SegmentView* reader = mapping_->reader(server);
      if (reader == nullptr || !reader->read_rows({rows.ids + begin, end - begin}, first, to)) return false;
    }
    begin = end;
  }
  return true;
}

void TableHandle::own_rows(const Rows& rows, std::vector<int64_t>& ids, std::vector<uint64_t>& from) const {
  const size_t servers = table_->servers.size(), own = own_server();
  const int64_t first = shard::first_row(spec_, servers, own);
  for (uint64_t i = 0; i < rows.count; ++i) {
    if (shard::server_of(spec_, servers, rows.ids[i]) != own) continue;
    ids.push_back(rows.ids[i] - first);
    from.push_back(i);
  }
}

/// If memory runs out before a keyed table has changed, the table is unchanged and the call fails. Any other failure
/// leaves a partial change and breaks the node down.
void TableHandle::change_own(wire::Write write, const Rows& rows, const std::byte* values) {
  try {
    change_own_part(write, rows, values);
  } catch (const shard::Halfway& thrown) {
    calls_.loop().break_down(&thrown);
    throw;
  } catch (const std::bad_alloc& thrown) {
    if (!spec_.is_keyed()) calls_.loop().break_down(&thrown);
    throw;
  }
}

void TableHandle::change_own_part(wire::Write write, const Rows& rows, const std::byte* values) {
  const shard::Worker worker = calls_.identity().worker_id;
  if (rows.all) return own_->change(write, worker, 0, own_->elements(), values + own_->rows().first * spec_.row_bytes());
  if (all_own_) return own_->change_rows(write, worker, {rows.ids, rows.count}, values);
  std::vector<int64_t> ids;
  std::vector<uint64_t> from;
  own_rows(rows, ids, from);
  if (ids.empty()) {
    // As on the other servers: an add to a store's key counts here too, and may replace rows here.
    if (write == wire::Write::Add && spec_.updater.name == shard::kReplacing) own_->change_rows(write, worker, {}, nullptr);
    return;
  }
  if (write == wire::Write::Erase) return own_->change_rows(write, worker, ids, nullptr);
  const size_t row_bytes = spec_.row_bytes();
  std::vector<std::byte> mine(ids.size() * row_bytes);
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(&mine[i * row_bytes], values + from[i] * row_bytes, row_bytes);
  own_->change_rows(write, worker, ids, mine.data());
}

void TableHandle::read_own(const Rows& rows, std::byte* out) const {
  const shard::Worker worker = calls_.identity().worker_id;
  if (rows.all) return own_->read(worker, 0, own_->elements(), out + own_->rows().first * spec_.row_bytes());
  if (all_own_) return own_->read_rows(worker, {rows.ids, rows.count}, out);
  std::vector<int64_t> ids;
  std::vector<uint64_t> from;
  own_rows(rows, ids, from);
  const size_t row_bytes = spec_.row_bytes();
  std::vector<std::byte> mine(ids.size() * row_bytes);
  own_->read_rows(worker, ids, mine.data());
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(out + from[i] * row_bytes, &mine[i * row_bytes], row_bytes);
}

base::Status TableHandle::close() { return {}; }

base::Status TableHandle::destroy() {
  const CallOptions options;
  const CallRef call = calls_.make_call(options, false);
  calls_.loop().post([this, call] { calls_.member().tables().catalogue().destroy(table_, call); });
  bool alive = true;
  base::Status status;
  while (alive && status.code() != MV_ESTATE) status = calls_.wait(call, base::Nanos(0), &alive);
  return status;
}

}  // namespace mv::api
