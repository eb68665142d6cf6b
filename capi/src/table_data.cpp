// Transfers values into tables and out of them.

#include <polyverso/polyverso.h>

#include <limits>
#include <type_traits>

#include "boundary.hpp"
#include "calls.hpp"
#include "tensor/dtype.hpp"

namespace mv::capi {
namespace {

using api::Rows;
using api::Table;

/// Checks pointers and counts; the table checks whether they fit it.
template <typename Data>
base::Status check_data(const char* function, const Rows& rows, const Data& data) {
  if (tensor::dtype_bytes(data.dtype) == 0)
    return base::error(MV_EINVAL, "{}: {} is not an mv_dtype", function, data.dtype);
  if (data.values == nullptr && data.count != 0)
    return base::error(MV_EINVAL, "{}: data is NULL, but count is {}", function, data.count);
  if (data.count > std::numeric_limits<int64_t>::max() / tensor::dtype_bytes(data.dtype)) {
    return base::error(MV_ESHAPE, "{}: {} values exceed the address space", function, data.count);
  }
  if (rows.all) return {};
  if (rows.ids == nullptr && rows.count != 0)
    return base::error(MV_EINVAL, "{}: rows is NULL, but row_count is {}", function, rows.count);
  // A row has at least one element. Checked here, so that no later product of the two overflows.
  if (rows.count > data.count) {
    return base::error(MV_ESHAPE, "{}: {} values given for {} rows", function, data.count, rows.count);
  }
  return {};
}

/// Runs one exported function: `Method` of the table, with the caller's arguments.
template <auto Method, MayForget kMayForget, typename Data>
mv_status move_data(const char* function, mv_table table, const Rows& rows, const Data& data,
                    const mv_call_options* given) {
  return boundary(function, [&](State& state) -> base::Status {
    CallPlan plan;
    if (auto status = plan_call(function, given, kMayForget, &plan); !status.ok()) return status;
    plan.lends = std::is_same_v<Data, api::MutableData>;
    auto pin = find_table(state, function, table);
    if (!pin.ok()) return pin.status();
    if (auto status = check_data(function, rows, data); !status.ok()) return status;
    Data placed = data;
    if (auto status = locate(placed); !status.ok()) return status;
    return run_call(state, pin.value()->node, plan,
                    [&](const api::CallOptions& how) { return ((*pin.value()->table).*Method)(rows, placed, how); });
  });
}

mv_status add(const char* function, mv_table table, const Rows& rows, const api::ConstData& data,
              const mv_call_options* options) {
  return move_data<&Table::add, MayForget::kYes>(function, table, rows, data, options);
}
mv_status set(const char* function, mv_table table, const Rows& rows, const api::ConstData& data,
              const mv_call_options* options) {
  return move_data<&Table::set, MayForget::kNo>(function, table, rows, data, options);
}
mv_status get(const char* function, mv_table table, const Rows& rows, const api::MutableData& data,
              const mv_call_options* options) {
  return move_data<&Table::get, MayForget::kNo>(function, table, rows, data, options);
}
mv_status peek(const char* function, mv_table table, const Rows& rows, const api::MutableData& data,
               const mv_call_options* options) {
  return move_data<&Table::peek, MayForget::kNo>(function, table, rows, data, options);
}

base::Status erase_rows(State& state, mv_table table, const Rows& rows, const mv_call_options* given) {
  CallPlan plan;
  if (auto status = plan_call("mv_table_erase_rows", given, MayForget::kYes, &plan); !status.ok()) return status;
  plan.lends = false;
  auto pin = find_table(state, "mv_table_erase_rows", table);
  if (!pin.ok()) return pin.status();
  if (rows.ids == nullptr && rows.count != 0)
    return base::error(MV_EINVAL, "mv_table_erase_rows: rows is NULL, but row_count is {}", rows.count);
  if (rows.count > std::numeric_limits<int64_t>::max() / sizeof(int64_t))
    return base::error(MV_ESHAPE, "mv_table_erase_rows: {} ids exceed the address space", rows.count);
  return run_call(state, pin.value()->node, plan,
                  [&](const api::CallOptions& how) { return pin.value()->table->erase(rows, how); });
}

}  // namespace
}  // namespace mv::capi

mv_status mv_table_add(mv_table table, const void* data, uint64_t count, mv_dtype dtype,
                       const mv_call_options* options) {
  return mv::capi::add("mv_table_add", table, {}, {data, count, dtype}, options);
}
mv_status mv_table_add_rows(mv_table table, const int64_t* rows, uint64_t row_count, const void* data, uint64_t count,
                            mv_dtype dtype, const mv_call_options* options) {
  return mv::capi::add("mv_table_add_rows", table, {rows, row_count, false}, {data, count, dtype}, options);
}
mv_status mv_table_get(mv_table table, void* data, uint64_t count, mv_dtype dtype, const mv_call_options* options) {
  return mv::capi::get("mv_table_get", table, {}, {data, count, dtype}, options);
}
mv_status mv_table_get_rows(mv_table table, const int64_t* rows, uint64_t row_count, void* data, uint64_t count,
                            mv_dtype dtype, const mv_call_options* options) {
  return mv::capi::get("mv_table_get_rows", table, {rows, row_count, false}, {data, count, dtype}, options);
}
mv_status mv_table_peek(mv_table table, void* data, uint64_t count, mv_dtype dtype, const mv_call_options* options) {
  return mv::capi::peek("mv_table_peek", table, {}, {data, count, dtype}, options);
}
mv_status mv_table_peek_rows(mv_table table, const int64_t* rows, uint64_t row_count, void* data, uint64_t count,
                             mv_dtype dtype, const mv_call_options* options) {
  return mv::capi::peek("mv_table_peek_rows", table, {rows, row_count, false}, {data, count, dtype}, options);
}
mv_status mv_table_set(mv_table table, const void* data, uint64_t count, mv_dtype dtype,
                       const mv_call_options* options) {
  return mv::capi::set("mv_table_set", table, {}, {data, count, dtype}, options);
}
mv_status mv_table_set_rows(mv_table table, const int64_t* rows, uint64_t row_count, const void* data, uint64_t count,
                            mv_dtype dtype, const mv_call_options* options) {
  return mv::capi::set("mv_table_set_rows", table, {rows, row_count, false}, {data, count, dtype}, options);
}
mv_status mv_table_erase_rows(mv_table table, const int64_t* rows, uint64_t row_count, const mv_call_options* options) {
  return mv::capi::boundary("mv_table_erase_rows", [&](mv::capi::State& state) {
    return mv::capi::erase_rows(state, table, {rows, row_count, false}, options);
  });
}
