// Creates, opens, describes, scans and closes tables.

#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "boundary.hpp"
#include "calls.hpp"
#include "options.hpp"
#include "shard/updater/updater.hpp"
#include "spec.hpp"
#include "state.hpp"
#include "tensor/dtype.hpp"
#include "text_out.hpp"

namespace mv::capi {
namespace {

base::Status create_table(State& state, const char* function, mv_node node, base::Result<shard::Spec> spec,
                          api::ConstData initial, mv_table* table) {
  if (!spec.ok()) return spec.status();
  if (table == nullptr) return base::error(MV_EINVAL, "{}: the pointer for the handle is NULL", function);
  if (initial.values == nullptr && initial.count != 0) {
    return base::error(MV_EINVAL, "{}: data is NULL, but count is {}", function, initial.count);
  }
  if (tensor::dtype_bytes(initial.dtype) == 0)
    return base::error(MV_EINVAL, "{}: {} is not an mv_dtype", function, initial.dtype);
  auto pin = find_working_node(state, function, node);
  if (!pin.ok()) return pin.status();
  const NodeRef& entry = *pin.value();
  if (auto status = locate(initial); !status.ok()) return status;
  auto created = entry->node->create_table(std::move(spec).value(), initial);
  if (!created.ok()) return created.status();
  *table = state.tables.insert({entry, std::move(created).value()});
  return {};
}

base::Status open_table(State& state, mv_node node, const char* name, mv_table* table) {
  if (name == nullptr) return base::error(MV_EINVAL, "mv_table_open: name is NULL");
  if (table == nullptr) return base::error(MV_EINVAL, "mv_table_open: the pointer for the handle is NULL");
  if (auto status = check_name("mv_table_open", name); !status.ok()) return status;
  auto pin = find_working_node(state, "mv_table_open", node);
  if (!pin.ok()) return pin.status();
  const NodeRef& entry = *pin.value();
  auto opened = entry->node->open_table(name);
  if (!opened.ok()) return opened.status();
  *table = state.tables.insert({entry, std::move(opened).value()});
  return {};
}

/// Closes a handle if give_up(table) sets `ended`. Meanwhile no other thread can use the handle; afterwards none ever
/// can.
template <typename GiveUp>
base::Status end_handle(State& state, const char* function, mv_table table, GiveUp give_up) {
  auto pin = find_table(state, function, table, Broken::kFound);
  if (!pin.ok()) return pin.status();
  if (!state.tables.begin_close(pin.value())) return not_a(state, function, HandleKind::kTable, table);
  bool ended = false;
  base::Status status;
  try {
    status = give_up(*pin.value()->table, &ended);
  } catch (...) {
    state.tables.reopen(pin.value());
    throw;
  }
  if (ended) {
    state.tables.close(pin.value());
  } else {
    state.tables.reopen(pin.value());
  }
  return status;
}

base::Status describe(State& state, mv_table table, mv_table_info* out) {
  if (out == nullptr) return base::error(MV_EINVAL, "mv_table_describe: info is NULL");
  auto read = read_struct("mv_table_describe", "mv_table_info", out, mv_table_info MV_TABLE_INFO_INIT, kFirstTableInfo);
  if (!read.ok()) return read.status();
  auto pin = find_table(state, "mv_table_describe", table);
  if (!pin.ok()) return pin.status();
  const auto told = pin.value()->table->info();
  if (!told.ok()) return told.status();
  const api::TableInfo& from = told.value();
  mv_table_info info = MV_TABLE_INFO_INIT;
  info.size = out->size;
  std::memcpy(info.name, from.spec.name.data(), std::min(from.spec.name.size(), sizeof(info.name) - 1));
  info.kind = from.spec.kind;
  info.dtype = from.spec.dtype;
  info.rows = from.spec.rows;
  info.cols = from.spec.cols;
  info.flags = from.spec.flags & ~shard::kLibraryFlags;
  info.servers = from.servers;
  info.bytes = from.bytes;
  info.adds = from.adds;
  info.gets = from.gets;
  const std::string updater = shard::to_text(from.spec.updater);
  const bool fits = updater.size() < sizeof(info.updater);
  std::memcpy(info.updater, updater.data(), fits ? updater.size() : updater.rfind(' ', sizeof(info.updater) - 1));
  info.staleness = from.spec.staleness;
  info.clock = from.clock;
  info.stored = from.usage.stored;
  info.memory_bytes = from.usage.memory_bytes;
  info.state_bytes = from.usage.state_bytes;
  info.updates = from.usage.updates;
  std::memcpy(out, &info, std::min<size_t>(sizeof(info), info.size));
  return {};
}

base::Status list_tables(State& state, mv_node node, char* text, uint64_t capacity, uint64_t* length) {
  if (auto status = check_text_out("mv_table_list", text, capacity, length); !status.ok()) return status;
  auto pin = find_node(state, "mv_table_list", node);
  if (!pin.ok()) return pin.status();
  const auto specs = (*pin.value())->node->list_tables();
  if (!specs.ok()) return specs.status();
  put_text(specs_as_json(specs.value()), text, capacity, length);
  return {};
}

base::Status scan(State& state, mv_table table, int64_t cursor, int64_t* rows, uint64_t capacity, const api::MutableData& data,
                  int64_t* next, uint64_t* found) {
  if (next == nullptr || found == nullptr) return base::error(MV_EINVAL, "mv_table_scan: the pointer for the result is NULL");
  if (rows == nullptr) return base::error(MV_EINVAL, "mv_table_scan: rows is NULL");
  if (data.values == nullptr && data.count != 0) return base::error(MV_EINVAL, "mv_table_scan: data is NULL, but count is {}", data.count);
  if (tensor::dtype_bytes(data.dtype) == 0) return base::error(MV_EINVAL, "mv_table_scan: {} is not an mv_dtype", data.dtype);
  auto pin = find_table(state, "mv_table_scan", table);
  if (!pin.ok()) return pin.status();
  const auto scanned = pin.value()->table->scan(cursor, {rows, capacity}, data);
  if (!scanned.ok()) return scanned.status();
  *next = scanned.value().next;
  *found = scanned.value().found;
  return {};
}

base::Status set_updater(State& state, mv_table table, const char* text, const mv_call_options* given) {
  CallPlan plan;
  if (auto status = plan_call("mv_table_set_updater", given, MayForget::kNo, &plan); !status.ok()) return status;
  plan.lends = false;
  if (text == nullptr) return base::error(MV_EINVAL, "mv_table_set_updater: updater is NULL");
  const auto updater = read_updater("mv_table_set_updater", text);
  if (!updater.ok()) return updater.status();
  auto pin = find_table(state, "mv_table_set_updater", table);
  if (!pin.ok()) return pin.status();
  return run_call(state, pin.value()->node, plan,
                  [&](const api::CallOptions& how) { return pin.value()->table->set_updater(updater.value(), how); });
}

}  // namespace
}  // namespace mv::capi

using mv::capi::State;

mv_status mv_table_create(mv_node node, const mv_table_spec* spec, const void* data, uint64_t count, mv_dtype dtype,
                          mv_table* table) {
  return mv::capi::boundary("mv_table_create", [&](State& state) {
    return mv::capi::create_table(state, "mv_table_create", node, mv::capi::read_spec("mv_table_create", spec),
                                  {data, count, dtype}, table);
  });
}

mv_status mv_table_create_text(mv_node node, const char* spec, const void* data, uint64_t count, mv_dtype dtype,
                               mv_table* table) {
  return mv::capi::boundary("mv_table_create_text", [&](State& state) -> mv::base::Status {
    if (spec == nullptr) return mv::base::error(MV_EINVAL, "mv_table_create_text: spec is NULL");
    return mv::capi::create_table(state, "mv_table_create_text", node,
                                  mv::capi::parse_spec("mv_table_create_text", spec), {data, count, dtype}, table);
  });
}

mv_status mv_table_open(mv_node node, const char* name, mv_table* table) {
  return mv::capi::boundary("mv_table_open", [&](State& state) { return mv::capi::open_table(state, node, name, table); });
}

mv_status mv_table_close(mv_table table) {
  return mv::capi::boundary("mv_table_close", [&](State& state) {
    return mv::capi::end_handle(state, "mv_table_close", table, [](mv::api::Table& on, bool* ended) {
      auto status = on.close();
      // Earlier calls may still be running then, and close may be called again.
      *ended = status.code() != MV_EINTR && status.code() != MV_ETIMEOUT;
      return status;
    });
  });
}

mv_status mv_table_destroy(mv_table table) {
  return mv::capi::boundary("mv_table_destroy", [&](State& state) {
    return mv::capi::end_handle(state, "mv_table_destroy", table, [](mv::api::Table& on, bool* ended) {
      auto status = on.destroy();
      *ended = status.ok() || status.code() == MV_ENOTFOUND;
      return status;
    });
  });
}

mv_status mv_table_describe(mv_table table, mv_table_info* info) {
  return mv::capi::boundary("mv_table_describe", [&](State& state) { return mv::capi::describe(state, table, info); });
}

mv_status mv_table_list(mv_node node, char* text, uint64_t capacity, uint64_t* length) {
  return mv::capi::boundary("mv_table_list",
                         [&](State& state) { return mv::capi::list_tables(state, node, text, capacity, length); });
}

mv_status mv_table_scan(mv_table table, int64_t cursor, int64_t* rows, uint64_t capacity, void* data, uint64_t count,
                        mv_dtype dtype, int64_t* next, uint64_t* found) {
  return mv::capi::boundary("mv_table_scan", [&](State& state) {
    return mv::capi::scan(state, table, cursor, rows, capacity, {data, count, dtype}, next, found);
  });
}

mv_status mv_table_clock(mv_table table) {
  return mv::capi::boundary("mv_table_clock", [&](State& state) -> mv::base::Status {
    auto pin = mv::capi::find_table(state, "mv_table_clock", table);
    return pin.ok() ? pin.value()->table->clock() : pin.status();
  });
}

mv_status mv_table_set_updater(mv_table table, const char* updater, const mv_call_options* options) {
  return mv::capi::boundary("mv_table_set_updater",
                         [&](State& state) { return mv::capi::set_updater(state, table, updater, options); });
}
