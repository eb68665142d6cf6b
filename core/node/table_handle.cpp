#include "node/table_handle.hpp"

#include <algorithm>
#include <cstring>

#include "math/kernels.hpp"
#include "node/member_node.hpp"

namespace mv::node {

namespace {

/// Fire-and-forget changes up to this size take the short way.
constexpr size_t kSmallBytes = 2048;

const char* dtype_name(mv_dtype dtype) { return dtype == MV_F32 ? "f32" : dtype == MV_F64 ? "f64" : dtype == MV_I64 ? "i64" : "raw"; }

}  // namespace

namespace {

base::Status check_size(const TableSpec& spec, uint64_t rows, uint64_t count, mv_dtype dtype) {
  if (dtype != MV_RAW && dtype != spec.dtype)
    return base::error(MV_EDTYPE, "table \"{}\" holds {}, {} was given", spec.name, dtype_name(spec.dtype), dtype_name(dtype));
  const uint64_t unit = dtype == MV_RAW ? spec.element_bytes() : 1;
  if (rows <= UINT64_MAX / (spec.cols * unit) && count == rows * spec.cols * unit) return {};
  return base::error(MV_ESHAPE, "table \"{}\": {} {} given, {} rows x {} columns need {}", spec.name, count,
                     dtype == MV_RAW ? "bytes" : "values", rows, spec.cols, rows * spec.cols * unit);
}

base::Status check_finite(const TableSpec& spec, uint64_t rows, const void* values) {
  if (!spec.rejects_nonfinite() || math::all_finite_bytes(spec.dtype, static_cast<const std::byte*>(values), rows * spec.cols)) return {};
  return base::error(MV_ENONFINITE, "table \"{}\" refuses NaN and infinity (reject_nonfinite)", spec.name);
}

}  // namespace

base::Status check_data(const TableSpec& spec, uint64_t rows, const ConstData& data) {
  const base::Status size = check_size(spec, rows, data.count, data.dtype);
  return size.ok() ? check_finite(spec, rows, data.values) : size;
}

TableHandle::TableHandle(MemberNode& node, ps::TableViewRef table, std::shared_ptr<table::Shard> own)
    : node_(node), table_(std::move(table)), spec_(table_->spec), own_(std::move(own)), all_own_(own_ != nullptr && own_->rows().count == spec_.rows) {}

TableInfo TableHandle::info() const {
  TableInfo info;
  info.spec = spec_;
  for (size_t server = 0; server < table_->servers.size(); ++server)
    info.servers += table::part_of(spec_.rows, table_->servers.size(), server).count > 0 ? 1 : 0;
  info.bytes = spec_.bytes();
  info.adds = adds_;
  info.gets = gets_;
  return info;
}

base::Status TableHandle::check_shape(const Rows& rows, uint64_t count, mv_dtype dtype) const {
  if (!rows.all) {
    const auto end = static_cast<int64_t>(spec_.rows);
    const int64_t* bad = std::find_if(rows.ids, rows.ids + rows.count, [&](int64_t row) { return row < 0 || row >= end; });
    if (bad != rows.ids + rows.count) return base::error(MV_ERANGE, "table \"{}\": row {} is outside 0 .. {}", spec_.name, *bad, end - 1);
  }
  return check_size(spec_, rows.all ? spec_.rows : rows.count, count, dtype);
}

/// The table is there, and no earlier fire-and-forget add has failed untold.
base::Status TableHandle::usable() {
  if (own_ != nullptr && own_->destroyed) return base::error(MV_ENOTFOUND, "table \"{}\" was destroyed", spec_.name);
  if (!table_->has_untold) return {};
  base::Status untold;
  node_.on_loop([&] { untold = node_.member().tables().take_untold(*table_); });
  if (untold.ok()) return {};
  return base::error(untold.code(), "an earlier fire-and-forget add failed: {}", untold.text());
}

Started TableHandle::finished_here(const CallOptions& options) {
  if (options.mode != Mode::kAsync) return {};
  const auto call = std::make_shared<Call>(Call::Kind::kTable, node_.finished(), options);
  call->complete({});
  node_.loop().wake_waiters();
  return {{}, call};
}

Started TableHandle::add(const Rows& rows, const ConstData& data, const CallOptions& options) {
  return change(wire::Write::Add, rows, data, options);
}
Started TableHandle::set(const Rows& rows, const ConstData& data, const CallOptions& options) {
  return change(wire::Write::Set, rows, data, options);
}
Started TableHandle::get(const Rows& rows, const MutableData& data, const CallOptions& options) { return fetch(true, rows, data, options); }
Started TableHandle::peek(const Rows& rows, const MutableData& data, const CallOptions& options) { return fetch(false, rows, data, options); }

Started TableHandle::change(wire::Write write, const Rows& rows, const ConstData& data, const CallOptions& options) {
  if (const base::Status wrong = check_shape(rows, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = check_finite(spec_, rows.all ? spec_.rows : rows.count, data.values); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  adds_.fetch_add(write == wire::Write::Add ? 1 : 0, std::memory_order_relaxed);
  const auto* values = static_cast<const std::byte*>(data.values);
  const uint64_t bytes = (rows.all ? spec_.rows : rows.count) * spec_.row_bytes();
  if (all_own_) {
    change_own(write, rows, values);
    return finished_here(options);
  }

  if (options.mode == Mode::kForget && bytes <= kSmallBytes) {
    base::Status status;
    if (forget_small(rows, values, write, options, &status)) return {status, nullptr};
  }
  ps::Request request;
  request.table = table_;
  request.kind = ps::OpKind::kChange;
  request.write = write;
  request.all = rows.all;
  if (!rows.all) request.rows.assign(rows.ids, rows.ids + rows.count);
  if (own_ != nullptr) request.skip = static_cast<size_t>(node_.identity().server_id);
  const bool gated = node_.identity().sync && write == wire::Write::Add;
  request.deadline = node_.deadline(options, gated);
  const bool blocking = options.mode == Mode::kBlocking;
  if (!blocking) {
    auto token = node_.reserve(bytes, options);
    if (!token.ok()) return {token.status(), nullptr};
    request.reserved = token.value();
  }
  request.source = blocking ? base::Payload::lent({values, bytes}) : base::Payload::copy({values, bytes});

  std::function<void()> own_work;
  if (own_ != nullptr) own_work = [&] { change_own(write, rows, values); };
  if (options.mode == Mode::kForget) {
    node_.forget(std::move(request));
    if (own_work) own_work();
    return {};
  }
  const auto call = std::make_shared<Call>(Call::Kind::kTable, node_.finished(), options);
  return node_.run(call, options, std::move(request), own_work);
}

/// Many small adds: the message is made here, by the caller, if it is one message to one server elsewhere. False if it is not.
bool TableHandle::forget_small(const Rows& rows, const std::byte* values, wire::Write write, const CallOptions& options,
                               base::Status* status) {
  const bool gated = node_.identity().sync && node_.identity().num_workers > 1;
  const size_t servers = table_->servers.size();
  if (gated || (rows.all ? servers > 1 : rows.count == 0)) return false;
  const size_t server = rows.all ? 0 : table::owner_of(spec_.rows, servers, static_cast<uint64_t>(rows.ids[0]));
  if (own_ != nullptr && static_cast<int64_t>(server) == node_.identity().server_id) return false;
  const table::Range part = table::part_of(spec_.rows, servers, server);
  const size_t row_count = rows.all ? 0 : rows.count, ids_bytes = row_count * sizeof(int64_t);
  const size_t values_bytes = (rows.all ? spec_.rows : rows.count) * spec_.row_bytes();
  alignas(8) std::byte payload[2 * kSmallBytes];
  if (ids_bytes + values_bytes > sizeof payload) return false;
  for (size_t i = 0; i < row_count; ++i) {
    const auto row = static_cast<uint64_t>(rows.ids[i]);
    if (row < part.first || row >= part.end()) return false;
    const uint64_t own_number = row - part.first;
    std::memcpy(payload + i * sizeof own_number, &own_number, sizeof own_number);
  }
  std::memcpy(payload + ids_bytes, values, values_bytes);

  const auto reserved = node_.reserve(values_bytes, options);
  if (!reserved.ok()) {
    *status = reserved.status();
    return true;
  }
  thread_local wire::FrameBuilder builder;
  const auto body = wire::CreateChange(builder.fbb(), table_->numbers[server], write, 0, rows.all ? spec_.elements() : 0, row_count);
  const std::span<const std::byte> bytes(payload, ids_bytes + values_bytes);
  node_.forget_small(table_, server, builder.finish_small(wire::Body::Change, body, bytes), reserved.value());
  return true;
}

Started TableHandle::fetch(bool gated, const Rows& rows, const MutableData& data, const CallOptions& options) {
  if (const base::Status wrong = check_shape(rows, data.count, data.dtype); !wrong.ok()) return {wrong, nullptr};
  if (const base::Status wrong = usable(); !wrong.ok()) return {wrong, nullptr};
  gets_.fetch_add(gated ? 1 : 0, std::memory_order_relaxed);
  auto* out = static_cast<std::byte*>(data.values);
  const uint64_t bytes = (rows.all ? spec_.rows : rows.count) * spec_.row_bytes();
  if (all_own_) {
    read_own(rows, out);
    return finished_here(options);
  }

  ps::Request request;
  request.table = table_;
  request.kind = ps::OpKind::kGet;
  request.gated = gated;
  request.all = rows.all;
  if (!rows.all) request.rows.assign(rows.ids, rows.ids + rows.count);
  if (own_ != nullptr) request.skip = static_cast<size_t>(node_.identity().server_id);
  request.destination = {out, bytes};
  request.deadline = node_.deadline(options, gated && node_.identity().sync);
  std::function<void()> own_work;
  if (own_ != nullptr) own_work = [&] { read_own(rows, out); };
  const auto call = std::make_shared<Call>(Call::Kind::kTable, node_.finished(), options);
  return node_.run(call, options, std::move(request), own_work);
}

void TableHandle::own_rows(const Rows& rows, std::vector<int64_t>& ids, std::vector<uint64_t>& from) const {
  const auto first = static_cast<int64_t>(own_->rows().first), end = static_cast<int64_t>(own_->rows().end());
  for (uint64_t i = 0; i < rows.count; ++i) {
    if (rows.ids[i] < first || rows.ids[i] >= end) continue;
    ids.push_back(rows.ids[i] - first);
    from.push_back(i);
  }
}

void TableHandle::change_own(wire::Write write, const Rows& rows, const std::byte* values) {
  const bool adds = write == wire::Write::Add;
  if (rows.all) {
    values += own_->rows().first * spec_.row_bytes();
    return adds ? own_->add(0, own_->elements(), values) : own_->set(0, own_->elements(), values);
  }
  if (all_own_) return adds ? own_->add_rows({rows.ids, rows.count}, values) : own_->set_rows({rows.ids, rows.count}, values);
  std::vector<int64_t> ids;
  std::vector<uint64_t> from;
  own_rows(rows, ids, from);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::byte* row = values + from[i] * spec_.row_bytes();
    adds ? own_->add_rows({&ids[i], 1}, row) : own_->set_rows({&ids[i], 1}, row);
  }
}

void TableHandle::read_own(const Rows& rows, std::byte* out) const {
  if (rows.all) return own_->read(0, own_->elements(), out + own_->rows().first * spec_.row_bytes());
  if (all_own_) return own_->read_rows({rows.ids, rows.count}, out);
  std::vector<int64_t> ids;
  std::vector<uint64_t> from;
  own_rows(rows, ids, from);
  for (size_t i = 0; i < ids.size(); ++i) own_->read_rows({&ids[i], 1}, out + from[i] * spec_.row_bytes());
}

base::Status TableHandle::close() { return {}; }

base::Status TableHandle::destroy() {
  const CallOptions options;
  const auto call = std::make_shared<Call>(Call::Kind::kTable, node_.finished(), options);
  node_.loop().post([this, call, until = node_.deadline(options, false)] { node_.member().tables().destroy(table_, until, call); });
  bool alive = true;
  base::Status status;
  while (alive && status.code() != MV_ESTATE) status = node_.wait(call, base::Nanos(0), &alive);
  return status;
}

}  // namespace mv::node
